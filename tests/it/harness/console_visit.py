"""Visits the console with a real browser, and prints as JSON what it saw.

Argument: JSON with `chromium` (a program), `api` (a URL), `token`, `folder` (for the file
that is downloaded, and for pictures), `scripts` and `table` (the conformance cases for consumers),
`revoke` (a command that takes the token's access away) and `env` (its variables).
The browser reaches the API through a port of this script, which can be closed like a network.
"""

import asyncio
import json
import pathlib
import re
import subprocess
import sys
import urllib.parse
import urllib.request

from playwright.async_api import async_playwright, expect

PATIENCE = 60_000
LISTS = "**/v1/exports?*"
# How long the page waits for an answer, and until it asks again.
ANSWER_MILLISECONDS, AGAIN_MILLISECONDS = 30_000, 5_000
OUTAGE_SECONDS = 5
# What a browser itself says of a network that is gone.
OUTAGE = re.compile(r"WebSocket connection to|net::ERR_(CONNECTION|EMPTY|SOCKET)")
# What happens in the page besides what it shows.
WATCH = """
window.violations = [];
document.addEventListener("securitypolicyviolation", (event) => {
  window.violations.push(`${event.violatedDirective}: ${event.blockedURI}`);
});
"""
# Who has neither a text nor a label.
NAMELESS = """
() => [...document.querySelectorAll("button, input, select, progress, a, img")]
  .filter((it) => it.checkVisibility() && !it.ariaLabel && !it.textContent.trim()
    && !(it.labels && it.labels.length) && !(it instanceof HTMLImageElement && it.alt === ""))
  .map((it) => it.outerHTML)
"""

# Types of events that a card does not draw: others put what they like into them.
UNDRAWN = """
async (view) => {
  const { Card } = await import("/console/card.js");
  const { TYPES } = await import("/console/consumer.js");
  const textless = { toString: 1, valueOf: 1 };
  const values = [undefined, null, true, -1, 1e308, "constructor", textless, [null, textless],
    [{ level: textless, message: textless }]];
  const members = ["state", "done", "total", "totalIsEstimate", "position", "attempt", "at", "code",
    "message", "rows", "bytes", "lines", "stage"];
  const datas = values.flatMap((value) => {
    const data = Object.fromEntries(members.map((member) => [member, value]));
    return [value, data, { ...data, stage: "generate", done: 1e9 }];
  });
  const time = "2026-01-01T00:00:00Z";
  const cards = TYPES.map((type) => {
    const card = new Card({ ...view, status: "PROCESSING" }, { open() {}, news() {} });
    card.element.querySelector("details").open = true;
    datas.forEach((data, index) => card.take({ id: `evt_${index}`, stream: {}, type, time, data }));
    return [type, card.element.querySelector(".events")];
  });
  await new Promise((drawn) => requestAnimationFrame(drawn));
  return cards.filter(([, events]) => events.childElementCount < datas.length).map(([it]) => it);
}
"""


class Network:
    """A port that leads to another one, until it is cut."""

    def __init__(self, upstream):
        self.upstream, self.port, self.server, self.writers = upstream, 0, None, set()

    async def open(self):
        self.server = await asyncio.start_server(self.lead, "127.0.0.1", self.port)
        self.port = self.server.sockets[0].getsockname()[1]

    async def cut(self):
        self.server.close()
        for writer in list(self.writers):
            writer.transport.abort()

    async def lead(self, reader, writer):
        other_reader, other_writer = await asyncio.open_connection("127.0.0.1", self.upstream)
        pair = {writer, other_writer}
        self.writers |= pair
        ways = (self.copy(reader, other_writer), self.copy(other_reader, writer))
        await asyncio.gather(*ways, return_exceptions=True)
        self.writers -= pair

    @staticmethod
    async def copy(reader, writer):
        try:
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        finally:
            writer.close()


class Visit:
    """One page, and what is asked of the API beside it."""

    def __init__(self, asked, network, page):
        self.asked, self.network, self.page, self.seen = asked, network, page, {}
        self.messages, self.refused = [], []
        self.running, self.busy = asyncio.Event(), asyncio.Event()
        page.on("console", self.heard)
        page.on("websocket", lambda socket: socket.on("framereceived", self.received))
        page.on("pageerror", lambda error: self.messages.append(str(error)))

    def heard(self, message):
        # The browser says of itself that an answer was 503.
        known = message.location["url"] in self.refused or OUTAGE.search(message.text)
        if message.type in ("error", "warning") and not known:
            self.messages.append(message.text)

    def received(self, frame):
        if '"job.running"' in str(frame):
            self.running.set()

    def call(self, method, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        headers = {"authorization": f"Bearer {self.asked['token']}"}
        if data is not None:
            headers["content-type"] = "application/json"
        url = self.asked["api"] + path
        request = urllib.request.Request(url, data=data, headers=headers, method=method)
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.load(answer)

    async def picture(self, name):
        path = pathlib.Path(self.asked["folder"]) / f"{name}.png"
        await self.page.screenshot(path=path, full_page=True)

    async def all(self):
        await self.sign_in()
        await self.page.get_by_label("Resource").select_option("slow")
        await self.complaint()
        await self.follow_through_an_outage()
        await self.follow_another_ones()
        await self.look_around()
        await self.leave_midway()
        await self.find_it_away()
        await asyncio.wait_for(self.wait_for_answers(), PATIENCE / 1_000)
        self.seen["messages"] = list(self.messages)
        await self.lose_access()

    @property
    def address(self):
        return f"http://127.0.0.1:{self.network.port}/"

    async def sign_in(self):
        page = self.page
        await page.goto(self.address)
        token = page.get_by_label("Token")
        await expect(token).to_be_focused()
        await self.picture("door")
        await token.fill("opt_wrong")
        await token.press("Enter")
        await expect(page.locator("#sign-in-fault")).not_to_be_empty()
        # No header can carry it.
        await token.fill("opt_\u00e9\U0001f600")
        await token.press("Enter")
        await expect(page.locator("#sign-in-fault")).to_contain_text("no token")
        # The browser says of itself that an answer was 401.
        self.messages.clear()
        await token.fill(self.asked["token"])
        await token.press("Enter")
        await expect(page.get_by_role("heading", name="New export")).to_be_visible()
        await expect(page.locator("#connection")).to_have_text("Live")

    async def complaint(self):
        """A wrong request is told field by field, and the focus goes there."""
        page = self.page
        await page.get_by_role("button", name="Add a filter").click()
        await page.get_by_label("Operator").select_option("EQ")
        await page.get_by_label("Column").select_option("amount")
        await page.get_by_label("Value", exact=True).fill("many")
        await page.get_by_role("button", name="Request the export").click()
        await expect(page.locator("#faults li")).to_have_count(1)
        await expect(page.locator("#faults")).to_be_focused()
        self.seen["complaint"] = await page.locator("#faults li").inner_text()
        self.messages.clear()
        await self.picture("complaint")
        # The same, and right: all rows, which is also what the database expects.
        await page.get_by_label("Operator").select_option("IS_NOT_NULL")
        await expect(page.get_by_label("Value", exact=True)).to_have_count(0)

    def card(self, job):
        return self.page.locator(f'.card[data-id="{job}"]')

    async def newest(self):
        return await self.page.locator(".card").first.get_attribute("data-id")

    async def moved(self, card, above):
        """Waits until the bar is further than it was."""
        bar = await card.locator("progress").element_handle()
        await self.page.wait_for_function(
            "([bar, above]) => bar.hasAttribute('value') && bar.value > above",
            arg=[bar, above],
            timeout=PATIENCE,
        )
        return await bar.evaluate("(bar) => bar.value")

    async def follow_through_an_outage(self):
        page, network = self.page, self.network
        await page.get_by_role("button", name="Request the export").click()
        await expect(page.locator(".card")).to_have_count(1)
        job = await self.newest()
        card = self.card(job)
        await card.locator("summary").click()
        first = await self.moved(card, 0)
        second = await self.moved(card, first)
        await self.picture("running")
        await network.cut()
        await expect(page.locator("#connection")).to_have_text("Reconnecting…")
        # The outage itself; nothing is waited for.
        await asyncio.sleep(OUTAGE_SECONDS)
        before = await card.locator("progress").evaluate("(bar) => bar.value")
        await network.open()
        await expect(page.locator("#connection")).to_have_text("Live", timeout=PATIENCE)
        after = await self.moved(card, before)
        # What a completed export has is asked for once more when the first answer is none. The
        # list, which is looked at after an outage, does not tell it first.
        await page.route(LISTS, lambda route: route.abort("connectionrefused"))
        await page.route(f"**/v1/exports/{job}", self.answer_busy, times=1)
        await expect(card.locator(".badge")).to_have_text("COMPLETED", timeout=PATIENCE)
        await asyncio.wait_for(self.busy.wait(), PATIENCE / 1_000)
        await page.unroute(LISTS)
        wanted = self.call("GET", f"/v1/channels/job:{job}/events?after=0&limit=1000")["events"]
        await expect(card.locator(".events > li")).to_have_count(len(wanted), timeout=PATIENCE)
        shown = await card.locator(".events > li").evaluate_all(
            "(all) => all.map((it) => it.dataset.event)"
        )
        self.seen["job"] = self.call("GET", f"/v1/exports/{job}")
        self.seen["bar"] = [first, second, before, after]
        self.seen["shown"], self.seen["stored"] = shown, [event["id"] for event in wanted]
        await self.picture("completed")
        async with page.expect_download() as downloading:
            await card.get_by_role("button", name="Download").click()
        download = await downloading.value
        assert len(self.refused) == 1, self.refused
        path = pathlib.Path(self.asked["folder"]) / "downloaded"
        await download.save_as(path)
        self.seen["file"] = {"path": str(path), "name": download.suggested_filename}

    async def follow_another_ones(self):
        """What is requested elsewhere appears by itself; it is canceled here.

        The API is slow to answer what it read before the run: the stream is ahead of it.
        """
        self.running.clear()
        await self.page.route("**/v1/exports/*", self.answer_late, times=1)
        job = self.call("POST", "/v1/exports", {"resource": "slow"})["exportJobId"]
        card = self.card(job)
        await self.moved(card, 0)
        await card.get_by_role("button", name="Cancel").click()
        await expect(card.locator(".badge")).to_have_text("CANCELED", timeout=PATIENCE)
        await expect(card.get_by_role("button", name="Cancel")).to_be_hidden()
        self.seen["canceled"] = self.call("GET", f"/v1/exports/{job}")["status"]
        self.seen["other"] = job

    async def answer_busy(self, route):
        self.refused.append(route.request.url)
        self.busy.set()
        await route.fulfill(status=503, json={"title": "Busy"})

    async def answer_late(self, route):
        answer = await (await route.fetch()).json()
        await self.running.wait()
        before = {"status": "PENDING", "updatedAt": answer["createdAt"]}
        progress = {**answer["progress"], "done": 0, "total": None}
        await route.fulfill(json={**answer, **before, "progress": progress})

    async def look_around(self):
        page = self.page
        self.seen["nameless"] = await page.evaluate(NAMELESS)
        self.seen["news"] = await page.locator("#news").inner_text()
        where = "() => [location.href, document.cookie, localStorage.length, sessionStorage.length]"
        self.seen["kept"] = await page.evaluate(where)
        scripts, table = pathlib.Path(self.asked["scripts"]), pathlib.Path(self.asked["table"])
        run = scripts.read_text(encoding="utf-8").replace("export function", "function")
        self.seen["differences"] = await page.evaluate(
            'async (table) => { const { Consumer } = await import("/console/consumer.js");'
            f" {run}; return differences(Consumer, JSON.parse(table)); }}",
            table.read_text(encoding="utf-8"),
        )
        self.seen["differences"] += await page.evaluate(UNDRAWN, self.seen["job"])
        # Signed in again after a reload, and not after signing out.
        await page.reload()
        await expect(page.locator(".card")).to_have_count(2)
        self.seen["violations"] = await page.evaluate("window.violations")
        await page.set_viewport_size({"width": 390, "height": 844})
        await self.picture("narrow")
        wide = "() => document.documentElement.scrollWidth - document.documentElement.clientWidth"
        self.seen["overflow"] = await page.evaluate(wide)
        await page.emulate_media(color_scheme="dark")
        await self.picture("dark")
        await page.get_by_role("button", name="Sign out").click()
        await page.reload()
        await expect(page.get_by_label("Token")).to_be_visible()

    async def enter(self, page):
        await page.get_by_label("Token").fill(self.asked["token"])
        await page.get_by_role("button", name="Sign in").click()
        await expect(page.locator("#connection")).to_have_text("Live")

    async def leave_midway(self):
        """What was asked before signing out is answered after it, and changes nothing."""
        page, held = self.page, asyncio.Queue()
        await self.enter(page)
        await page.route("**/v1/exports", held.put)
        await page.route("**/v1/exports/*/rerun", held.put)
        await page.get_by_label("File name").fill("mine")
        await page.get_by_role("button", name="Request the export").click()
        requested = await held.get()
        await page.locator(".card .rerun").first.click()
        rerun = await held.get()
        await page.get_by_role("button", name="Sign out").click()
        await expect(page.get_by_label("Token")).to_be_visible()
        other = "0197f604-49fe-7b73-bb81-df2e93a7e47d"
        await self.answer(requested, 202, {**self.seen["job"], "exportJobId": other})
        await self.enter(page)
        await self.answer(rerun, 401, {"title": "Unauthorized"})
        # A round trip of the page itself, by which it has taken the answer in.
        await page.evaluate("fetch('livez').then((it) => it.text())")
        await expect(page.get_by_role("heading", name="New export")).to_be_visible()
        cards = page.locator(".card")
        self.seen["after"] = {
            "cards": await cards.evaluate_all("(all) => all.map((it) => it.dataset.id)"),
            "fileName": await page.get_by_label("File name").input_value(),
            "news": await page.locator("#news").inner_text(),
            "trouble": await page.locator("#trouble").inner_text(),
        }
        await expect(page.get_by_role("button", name="Request the export")).to_be_enabled()
        await page.get_by_role("button", name="Sign out").click()

    async def answer(self, route, status, body):
        if status >= 400:
            self.refused.append(route.request.url)
        async with self.page.expect_event("requestfinished", lambda it: it == route.request):
            await route.fulfill(status=status, json=body)

    async def find_it_away(self):
        """A service that is away says nothing against a token; it is asked again when it wants."""
        page = await self.page_with_a_clock()
        asked, answers = 0, asyncio.Queue()

        async def answer(route):
            nonlocal asked
            asked += 1
            await (await answers.get())(route)

        def refusal(status, headers=None):
            return lambda route: route.fulfill(status=status, headers=headers, json={})

        door, away = page.locator("#sign-in"), page.locator("#away")
        await page.route(LISTS, answer)
        busy = refusal(503, {"retry-after": "1000"})
        answers.put_nowait(busy)
        await page.reload()
        await expect(away).to_contain_text("It is asked again at")
        await expect(door).to_be_hidden()
        await page.clock.fast_forward(900_000)
        await page.evaluate("fetch('livez').then((it) => it.text())")
        assert asked == 1, "it is asked before it wants"
        for again in (lambda route: route.abort(), refusal(429)):
            await page.clock.fast_forward(100_000)
            await expect(away).to_contain_text("It is being asked.")
            answers.put_nowait(again)
            await expect(away).to_contain_text("It is asked again at")
        answers.put_nowait(lambda route: route.continue_())
        await page.clock.fast_forward(100_000)
        await expect(page.locator("#connection")).to_have_text("Live")
        await expect(away).to_be_hidden()

        # Who does not want to wait may leave, and a refusal is none of the service's.
        answers.put_nowait(busy)
        await page.reload()
        await page.get_by_role("button", name="Sign out").click()
        await expect(door).to_be_visible()
        await expect(away).to_be_hidden()
        await page.get_by_label("Token").fill(self.asked["token"])
        answers.put_nowait(refusal(403))
        await page.get_by_role("button", name="Sign in").click()
        await expect(page.locator("#sign-in-fault")).not_to_be_empty()
        await expect(door).to_be_visible()
        await page.context.close()

    async def page_with_a_clock(self):
        """A page of its own, signed in, whose time can be moved."""
        context = await self.page.context.browser.new_context()
        context.set_default_timeout(PATIENCE)
        page = await context.new_page()
        page.on("pageerror", lambda error: self.messages.append(str(error)))
        await page.clock.install()
        await page.goto(self.address)
        await self.enter(page)
        return page

    async def wait_for_answers(self):
        """An answer that never comes is waited for no longer than a time, and asked for again."""
        page, exports, lists = await self.page_with_a_clock(), asyncio.Queue(), asyncio.Queue()

        async def give_up(held):
            """Lets the time pass in which there should have been an answer, and until the next."""
            async with page.expect_event("requestfailed", lambda it: it == held.request):
                await page.clock.fast_forward(ANSWER_MILLISECONDS)
            # A round trip of the page itself, by which it has taken that in.
            await page.evaluate("fetch('livez').then((it) => it.text())")
            await page.clock.fast_forward(AGAIN_MILLISECONDS)

        # The stream alone tells that an export is over; all else that could is held.
        await page.route("**/v1/exports/*", exports.put)
        await page.route(LISTS, lists.put)
        await page.get_by_label("Resource").select_option("order")
        async with page.expect_response(lambda it: it.request.method == "POST") as requesting:
            await page.get_by_role("button", name="Request the export").click()
        requested = await (await requesting.value).json()
        card = page.locator(f'.card[data-id="{requested["exportJobId"]}"]')
        download = card.get_by_role("button", name="Download")
        await expect(card.locator(".badge")).to_have_text("COMPLETED", timeout=PATIENCE)
        await give_up(await exports.get())
        # What the API answers next is of before the end once more, and does not end the asking.
        await (await exports.get()).fulfill(json=requested)
        await expect(card.locator(".badge")).to_have_text("PENDING")
        await expect(download).to_be_hidden()
        await page.clock.fast_forward(AGAIN_MILLISECONDS)
        await (await exports.get()).continue_()
        await expect(card.locator(".badge")).to_have_text("COMPLETED")
        await expect(download).to_be_visible()

        # A page that is opened again and not answered is no blank page, and can be left.
        await page.goto("about:blank")
        while not lists.empty():
            lists.get_nowait()
        await page.goto(self.address)
        held, away = await lists.get(), page.locator("#away")
        await expect(away).to_contain_text("It is being asked.")
        await expect(page.get_by_role("button", name="Sign out")).to_be_visible()
        await give_up(held)
        await (await lists.get()).continue_()
        await expect(download).to_be_visible()
        await page.context.close()

    async def lose_access(self):
        """Who is revoked is shown the door without touching anything."""
        page = self.page
        await self.enter(page)
        command, env = self.asked["revoke"], self.asked["env"]
        subprocess.run(command, env=env, check=True, stdout=subprocess.DEVNULL)
        fault = "The token is not accepted any more."
        await expect(page.locator("#sign-in-fault")).to_have_text(fault, timeout=PATIENCE)
        self.seen["left"] = await page.locator(".card").count()


async def main():
    asked = json.loads(sys.argv[1])
    network = Network(urllib.parse.urlsplit(asked["api"]).port)
    await network.open()
    async with async_playwright() as playwright:
        # The sandbox needs rights that a container's root has not.
        browser = await playwright.chromium.launch(
            executable_path=asked["chromium"], args=["--no-sandbox"]
        )
        context = await browser.new_context(viewport={"width": 1280, "height": 900})
        context.set_default_timeout(PATIENCE)
        await context.add_init_script(WATCH)
        visit = Visit(asked, network, await context.new_page())
        try:
            await visit.all()
        except Exception:
            # What the page showed then says more than what was waited for.
            print(await visit.page.locator("body").inner_text(), visit.messages, file=sys.stderr)
            raise
        await browser.close()
    await network.cut()
    print(json.dumps(visit.seen))


asyncio.run(main())
