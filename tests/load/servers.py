"""A small OpenAI-compatible server on loopback that behaves, or misbehaves, as it is told."""

import asyncio
import json
import threading
from contextlib import contextmanager

from aiohttp import web


class Manners:
    """How the server answers."""

    def __init__(self, **words):
        self.first_seconds = words.pop("first_seconds", 0.0)
        self.token_seconds = words.pop("token_seconds", 0.0)
        self.status = words.pop("status", 200)  # or a function of the request's number
        self.cut_after = words.pop("cut_after", None)  # tokens, then the connection is closed
        self.garbage_after = words.pop("garbage_after", None)
        self.error_after = words.pop("error_after", None)
        self.stall = words.pop("stall", None)  # (number, seconds): from this request on nothing is answered so long
        self.open_again = 0.0
        self.has_usage = words.pop("has_usage", True)
        self.knows_ignore_eos = words.pop("knows_ignore_eos", True)
        self.seats = asyncio.Semaphore(words.pop("seats", 10_000))
        self.asked = []  # bodies
        assert not words


def app_of(manners):
    async def models(request):
        return web.json_response({"data": [{"id": "tiny"}]})

    async def complete(request):
        body = await request.json()
        manners.asked.append((body, dict(request.headers)))
        number = len(manners.asked)
        if "ignore_eos" in body and not manners.knows_ignore_eos:
            return web.json_response({"error": {"message": "Unrecognized request argument: ignore_eos"}}, status=400)
        status = manners.status(number) if callable(manners.status) else manners.status
        if status != 200:
            return web.json_response({"error": {"message": "no"}}, status=status)
        is_chat = "messages" in body
        text = body["messages"][0]["content"] if is_chat else body["prompt"]
        answer = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        async with manners.seats:
            await asyncio.sleep(manners.first_seconds)
            now = asyncio.get_running_loop().time()
            if manners.stall and number == manners.stall[0]:
                manners.open_again = now + manners.stall[1]
            await asyncio.sleep(max(manners.open_again - now, 0.0))
            await answer.prepare(request)
            if is_chat:
                await send(answer, {"choices": [{"delta": {"role": "assistant", "content": ""}}]})
            for at in range(body["max_tokens"]):
                if at:
                    await asyncio.sleep(manners.token_seconds)
                if at == manners.cut_after:
                    request.transport.close()
                    return answer
                if at == manners.garbage_after:
                    await answer.write(b"data: {not json\n\n")
                if at == manners.error_after:
                    await send(answer, {"error": {"message": "out of memory"}})
                choice = {"delta": {"content": "a "}} if is_chat else {"text": "a "}
                await send(answer, {"choices": [choice]})
        if manners.has_usage:
            words = len(text.split())
            usage = {"prompt_tokens": 2 * words + (5 if is_chat else 0), "completion_tokens": body["max_tokens"]}
            await send(answer, {"choices": [], "usage": usage})
        await answer.write(b"data: [DONE]\n\n")
        return answer

    app = web.Application()
    app.router.add_get("/v1/models", models)
    app.router.add_post("/v1/completions", complete)
    app.router.add_post("/v1/chat/completions", complete)
    return app


async def send(answer, value):
    await answer.write(b"data: " + json.dumps(value).encode() + b"\n\n")


@contextmanager
def serving(**words):
    """Serve in a thread of its own; give the address and the manners."""
    loop = asyncio.new_event_loop()
    ready, held = threading.Event(), {}

    async def begin():
        held["manners"] = Manners(**words)
        held["runner"] = web.AppRunner(app_of(held["manners"]), access_log=None, shutdown_timeout=0.1)
        await held["runner"].setup()
        site = web.TCPSite(held["runner"], "127.0.0.1", 0)
        await site.start()
        held["port"] = site._server.sockets[0].getsockname()[1]
        ready.set()

    def run():
        asyncio.set_event_loop(loop)
        loop.run_until_complete(begin())
        loop.run_forever()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    assert ready.wait(10)
    try:
        yield f"http://127.0.0.1:{held['port']}", held["manners"]
    finally:
        asyncio.run_coroutine_threadsafe(held["runner"].cleanup(), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()
