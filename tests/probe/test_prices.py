"""The person's price file and the catalogues, against a small server on loopback: what is fetched, and that nothing is lost."""

from __future__ import annotations

import io
import os
import threading
import zipfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tonnage.errors import BadFileError, OutsideError, RequestError
from tonnage.hardware.catalogue import find_device
from tonnage.hardware.prices import cheapest_offers
from tonnage.probe import price_sources, prices

HUNT = "instance_name,location,price,cpu,memory,gpu_count,gpu_name,gpu_memory,spot,disk_size\n"
SKY = "InstanceType,AcceleratorName,AcceleratorCount,vCPUs,MemoryGiB,GpuInfo,Price,SpotPrice,Region\n"
RATES = b"<Cube time='2026-11-27'><Cube currency='USD' rate='1.2'/><Cube currency='CNY' rate='8.4'/></Cube>"


def zipped(name: str, text: str) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(name, text)
    return packed.getvalue()


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.server.asked.append(self.path)
        answer = self.server.files.get(self.path)
        if isinstance(answer, str):
            self.send_response(302)
            self.send_header("Location", answer)
            self.end_headers()
            return
        self.send_response(404 if answer is None else 200)
        promised = len(answer or b"") + (100 if self.path in self.server.broken else 0)
        self.send_header("Content-Length", str(promised))
        self.end_headers()
        self.wfile.write(answer or b"")

    def log_message(self, *arguments):
        del arguments


@pytest.fixture
def server(monkeypatch, tmp_path):
    """Serve catalogues, and let the person's file lie in an empty folder."""
    served = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    served.files, served.asked, served.broken = {}, [], set()
    thread = threading.Thread(target=served.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    address = f"http://127.0.0.1:{served.server_port}"
    monkeypatch.setenv("TONNAGE_GPUHUNT_URL", f"{address}/hunt")
    monkeypatch.setenv("TONNAGE_SKYPILOT_URL", f"{address}/sky")
    monkeypatch.setenv("TONNAGE_ECB_URL", f"{address}/ecb.xml")
    monkeypatch.setenv("TONNAGE_TODAY", "2026-11-30")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    yield served
    served.shutdown()
    served.server_close()
    thread.join()


def give_hunt(server, provider: str, rows: str, version: str = "20261129-1") -> None:
    server.files[f"/hunt/{provider}/version"] = version.encode()
    server.files[f"/hunt/{provider}/{version}/catalog.zip"] = zipped(f"{provider}.csv", HUNT + rows)


def lying() -> list[str]:
    """Return what lies in the folder of the person's file."""
    return [path.name for path in prices.own_path().parent.iterdir()]


def rents(name: str) -> list[tuple[str, float, str]]:
    quotes = cheapest_offers(find_device(name), 1, is_spot=False, book=prices.price_book())
    return [(q.offer.provider, q.usd_per_hour, q.offer.day) for q in quotes]


def test_without_a_file_the_shipped_prices_count(server):
    assert prices.read_own().num_prices == 0
    assert prices.price_book().today == "2026-11-30"
    assert ("verda", 2.29, "2026-06") in rents("h100-sxm5")
    assert server.asked == []


def test_a_refresh_replaces_what_a_provider_asks(server):
    give_hunt(server, "verda", "1H100.80S.32V,FIN-02,1.99,32,185,1,H100,80,False,\n")
    server.files["/sky/vast/vms.csv"] = (SKY + "1x-RTX_4090-32-65536,RTX4090,1,32,64,,0.33,0.00,SE\n").encode()
    server.files["/ecb.xml"] = RATES
    results = price_sources.refresh()
    done = {(r.source, r.provider) for r in results if not r.fault}
    assert done == {("gpuhunt", "verda"), ("skypilot", "vast"), ("ecb", "ecb")}
    assert ("verda", 1.99, "2026-11-30") in rents("h100-sxm5")
    assert not [r for r in rents("h100-sxm5") if r[0] == "vast"]  # vast lists none any more
    assert rents("rtx-4090")[0] == ("vast", 0.33, "2026-11-30")
    assert ("aws", 6.88, "2026-07") in rents("h100-sxm5")  # not fetched: as it was
    assert prices.price_book().rates["CNY"].per_usd == pytest.approx(7.0)
    assert lying() == ["prices.csv"]


def test_of_two_catalogues_the_first_that_answers_counts(server):
    give_hunt(server, "nebius", "a,r,2.0,1,1,1,H100,80,False,\n")
    server.files["/sky/nebius/vms.csv"] = (SKY + "b,H100,1,1,1,,3.0,,r\n").encode()
    server.files["/sky/lambda/vms.csv"] = (SKY + "gpu_1x_h100_sxm5,H100,1,1,1,,3.5,,r\n").encode()
    price_sources.refresh(("gpuhunt", "skypilot"))
    assert "/sky/nebius/vms.csv" not in server.asked
    assert {("nebius", 2.0, "2026-11-30"), ("lambda", 3.5, "2026-11-30")} <= set(rents("h100-sxm5"))


def test_prices_of_ones_own_survive_a_refresh(server):
    prices.import_table("kind,gpu,price,provider\nbuy,4090,1500,\nrent,4090,0.2,friend\n", "mine.csv")
    server.files["/sky/vast/vms.csv"] = (SKY + "1x-RTX_4090-32-65536,RTX4090,1,32,64,,0.33,0.00,SE\n").encode()
    price_sources.refresh(("skypilot",))
    assert rents("rtx-4090")[:2] == [("friend", 0.2, "2026-11-30"), ("vast", 0.33, "2026-11-30")]
    assert [p.usd for p in prices.read_own().purchases] == [1500.0]


def test_a_failed_refresh_loses_nothing(server):
    prices.import_table("gpu,price\n4090,1500\n", "mine.csv")
    before = prices.own_path().read_bytes()
    with pytest.raises(OutsideError, match="no catalogue could be fetched: answered 404") as caught:
        price_sources.refresh()
    assert caught.value.exit_code == 4
    assert prices.own_path().read_bytes() == before
    assert lying() == ["prices.csv"]


def test_a_refresh_that_cannot_write_loses_nothing(server, monkeypatch):
    prices.import_table("gpu,price\n4090,1500\n", "mine.csv")
    before = prices.own_path().read_bytes()
    server.files["/ecb.xml"] = RATES

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OutsideError, match="No space left") as caught:
        price_sources.refresh(("ecb",))
    assert caught.value.exit_code == 4
    assert prices.own_path().read_bytes() == before
    assert lying() == ["prices.csv"]


def test_a_broken_file_of_ones_own_is_not_overwritten(server):
    path = prices.own_path()
    path.parent.mkdir(parents=True)
    path.write_text("gpu,price\nnothing at all,1\n")
    server.files["/ecb.xml"] = RATES
    with pytest.raises(BadFileError, match="line 2"):
        price_sources.refresh(("ecb",))
    assert path.read_text() == "gpu,price\nnothing at all,1\n"


@pytest.mark.parametrize(
    ("data", "fault"),
    [
        (b"no zip", "no archive"),
        (zipped("other.csv", "x"), "no archive that holds verda.csv"),
        (zipped("verda.csv", HUNT), "no price that could be read"),
        (zipped("verda.csv", HUNT + "x,r,1,1,1,1,UNKNOWN9,80,False,\n"), "no price that could be read"),
    ],
)
def test_a_broken_catalogue_is_named_and_the_others_count(server, data, fault):
    server.files["/hunt/verda/version"] = b"1"
    server.files["/hunt/verda/1/catalog.zip"] = data
    server.files["/sky/verda/vms.csv"] = (SKY + "1H100.80S.32V,H100,1,1,1,,1.5,,r\n").encode()
    results = {(r.source, r.provider): r.fault for r in price_sources.refresh(("gpuhunt", "skypilot"))}
    assert fault in results["gpuhunt", "verda"]
    assert results["skypilot", "verda"] == ""
    assert ("verda", 1.5, "2026-11-30") in rents("h100-sxm5")


def test_what_is_too_large_is_not_read(server, monkeypatch):
    server.files["/ecb.xml"] = b"x" * (2 << 20)
    with pytest.raises(OutsideError, match="more than 1024 KiB"):
        price_sources.refresh(("ecb",))
    monkeypatch.setattr(price_sources, "_LARGEST_TABLE_BYTES", 1000)
    give_hunt(server, "verda", "x" * 5000)
    server.files["/ecb.xml"] = RATES
    faults = {r.provider: r.fault for r in price_sources.refresh(("gpuhunt", "ecb"))}
    assert "unpacks to more" in faults["verda"]


def test_a_version_that_is_a_path_is_not_followed(server):
    server.files["/hunt/aws/version"] = b"../../etc/passwd"
    with pytest.raises(OutsideError):
        price_sources.refresh(("gpuhunt",))
    assert not [path for path in server.asked if "passwd" in path]


def test_an_answer_that_breaks_off_is_none(server):
    server.files["/ecb.xml"] = RATES
    server.broken.add("/ecb.xml")
    with pytest.raises(OutsideError, match=r"broke off|cannot be reached"):
        price_sources.refresh(("ecb",))


def test_a_redirect_leads_to_the_web_only(server, tmp_path):
    (tmp_path / "secret").write_bytes(RATES)
    server.files["/ecb.xml"] = f"file://{tmp_path}/secret"
    with pytest.raises(OutsideError):
        price_sources.refresh(("ecb",))
    server.files |= {"/ecb.xml": "/moved.xml", "/moved.xml": RATES}
    assert price_sources.refresh(("ecb",))[0].fault == ""


def test_nobody_answers(server, monkeypatch):
    monkeypatch.setenv("TONNAGE_ECB_URL", "http://127.0.0.1:9/")
    with pytest.raises(OutsideError, match="cannot be reached"):
        price_sources.refresh(("ecb",))
    monkeypatch.setenv("TONNAGE_ECB_URL", "file:///etc/passwd")
    with pytest.raises(RequestError, match="no web address"):
        price_sources.refresh(("ecb",))
    assert server.asked == []


@pytest.mark.parametrize("data", [b"\xff\xfe", b"gpu,price\n4090,1\0\n", b"x" * (prices.LARGEST_FILE_BYTES + 1)])
def test_what_is_no_text_is_refused(data):
    with pytest.raises(BadFileError):
        prices.decode(data, "mine.csv")


def test_a_bad_import_changes_nothing(server):
    prices.import_table("gpu,price\n4090,1500\n", "mine.csv")
    for text in ("gpu,price\n5090,1\n4090,x\n", "gpu,price\n", ""):
        with pytest.raises(BadFileError):
            prices.import_table(text, "mine.csv")
    assert [(p.device, p.usd) for p in prices.read_own().purchases] == [("rtx-4090", 1500.0)]
    assert server.asked == []


def test_where_the_file_lies(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    assert prices.own_path() == tmp_path / "data" / "tonnage" / "prices.csv"
    monkeypatch.setenv("TONNAGE_PRICES", str(tmp_path / "x.csv"))
    assert prices.own_path() == tmp_path / "x.csv"


def test_todays_date(monkeypatch):
    monkeypatch.setenv("TONNAGE_TODAY", "2026-02-30")
    with pytest.raises(RequestError, match="TONNAGE_TODAY"):
        prices.today()
    monkeypatch.delenv("TONNAGE_TODAY")
    assert len(prices.today()) == 10
