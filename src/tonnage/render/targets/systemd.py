"""A machine with systemd: a unit that restarts when it should, is stopped gently, and cannot take the host down.

Settings as in systemd.service(5), systemd.exec(5), systemd.kill(5) and systemd.resource-control(5).
"""

from __future__ import annotations

from tonnage.messages import say
from tonnage.render.parts import before_start, common_files
from tonnage.render.quote import shell_words
from tonnage.render.scripts import comment, script
from tonnage.render.targets.local import start_script
from tonnage.render.types import Bundle, BundleFile, Role, Service

_NEVER_AGAIN = (2, 3)  # exit codes: the request is wrong, the run was given up


def bundle(service: Service) -> Bundle:
    """Return the files that run a service under systemd."""
    start = "sudo bash install-unit.sh --yes"
    files = (
        *common_files(service, start, "systemd"),
        start_script(service),
        BundleFile(path=f"{service.name}.service", text=unit(service), purpose=say("deploy.purpose_unit")),
        _installer(service),
    )
    stop = f"sudo systemctl stop {service.name}.service"
    return Bundle(
        name=service.name,
        place="systemd",
        files=files,
        start=start,
        stop=stop,
        notes=service.notes,
        before=before_start(service, "systemd"),
    )


def unit(service: Service) -> str:
    """Return the unit file; `@FOLDER@` and `@USER@` are filled in by the installer."""
    is_job = service.role is Role.JOB
    restart = "on-failure" if is_job else "always"
    seconds = round(service.stop_seconds)
    sections = {
        "Unit": [
            ("Description", systemd_text(say("deploy.unit_description", name=service.name))),
            ("After", "network-online.target nvidia-persistenced.service"),
            ("Wants", "network-online.target"),
            ("StartLimitIntervalSec", "1h"),
            ("StartLimitBurst", "5"),
        ],
        "Service": [
            ("Type", "exec"),
            ("User", "@USER@"),
            ("WorkingDirectory", "@FOLDER@"),
            ("EnvironmentFile", "-@FOLDER@/secrets.env"),
            ("ExecStart", f"/usr/bin/env bash {service.program}"),
            ("Restart", restart),
            ("RestartSec", "30"),
            ("RestartPreventExitStatus", " ".join(map(str, _NEVER_AGAIN))),
            ("KillSignal", "SIGTERM"),
            ("KillMode", "mixed"),
            ("TimeoutStopSec", str(seconds)),
            ("RestartForceExitStatus", "75"),
            ("MemoryMax", str(service.host_memory_bytes + service.shared_memory_bytes)),
            ("MemorySwapMax", "0"),
            ("OOMPolicy", "stop"),
            ("OOMScoreAdjust", "500"),
            ("ManagedOOMMemoryPressure", "auto"),
            ("TasksMax", "16384"),
            ("LimitMEMLOCK", "infinity"),
            ("LimitNOFILE", "1048576"),
            ("NoNewPrivileges", "yes"),
            ("PrivateTmp", "yes"),
        ],
        "Install": [("WantedBy", "multi-user.target")],
    }
    return "\n".join(
        f"[{name}]\n" + "".join(f"{key}={value}\n" for key, value in pairs) for name, pairs in sections.items()
    )


def systemd_text(text: str) -> str:
    """Return free text for a setting that takes the rest of the line."""
    return " ".join(text.replace("%", "%%").split())


def _installer(service: Service) -> BundleFile:
    name = f"{service.name}.service"
    drop_in = f"/etc/systemd/system/{name}.d/backoff.conf"
    text = script(
        say("deploy.unit_installer", name=name),
        (
            "user=${SUDO_USER:-$(id -un)}",
            "# In a unit % begins a specifier and is doubled; a line break or a backslash at the end cannot be written.",
            "case \"$PWD\" in *$'\\n'* | *\\\\ | *' ')",
            f"  echo {shell_words([say('places.unit_folder')])} >&2",
            "  exit 2 ;;",
            "esac",
            "folder=${PWD//%/%%}",
            f"unit=$(cat {shell_words([name])})",
            'unit=${unit//@FOLDER@/"$folder"}; unit=${unit//@USER@/"$user"}',
            'if [ "${1:-}" != --yes ]; then',
            f'  printf \'%s\\n\' "would write /etc/systemd/system/{name}:" "$unit" "and start it; --yes does it"',
            "  exit 0",
            "fi",
            f"printf '%s\\n' \"$unit\" > /etc/systemd/system/{name}",
            comment(say("places.backoff")),
            "version=$(systemctl --version | sed -n '1s/^systemd \\([0-9]*\\).*/\\1/p')",
            'if [ "${version:-0}" -ge 254 ]; then',
            f"  mkdir -p {drop_in.rpartition('/')[0]}",
            f"  printf '[Service]\\nRestartSteps=5\\nRestartMaxDelaySec=10min\\n' > {drop_in}",
            "fi",
            f"systemctl daemon-reload && systemctl enable --now {name}",
            f"echo 'undo: systemctl disable --now {name} && rm -r /etc/systemd/system/{name}*'",
        ),
    )
    return BundleFile(path="install-unit.sh", text=text, purpose=say("deploy.purpose_unit_install"), is_executable=True)
