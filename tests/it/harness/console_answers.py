"""What the console makes of answers that a service gives seldom; prints as JSON what went wrong.

Argument: JSON with `chromium` (a program), `api` (a URL), `token`, and `export`: one that is
completed, as the API shows it. The page and the stream are the service's, the answers of the API
are made up where a case needs them.
"""

import asyncio
import json
import sys
import urllib.parse

from playwright.async_api import async_playwright, expect

PATIENCE = 60_000
# Until the page looks, or asks, again.
AGAIN_MILLISECONDS = 5_000
PAGE = 50
EXPORTS, RESOURCES = "**/v1/exports?*", "**/v1/resources"
# Where the focus is: the card's export.
FOCUS = "() => document.activeElement.closest('.card')?.dataset.id"

HIDE = """
(is) => {
  Object.defineProperty(document, "hidden", { configurable: true, value: is });
  document.dispatchEvent(new Event("visibilitychange"));
}
"""


class List:
    """The exports that the API lists; those of a number are made up, the higher the newer."""

    def __init__(self, export):
        self.export, self.count, self.asked = export, 0, 0

    def view(self, number):
        name = f"{number:012}"
        time = f"2026-01-01T{number // 60:02}:{number % 60:02}:00.000Z"
        ids = {"exportJobId": f"00000000-0000-7000-8000-{name}", "fileName": name}
        return {**self.export, **ids, "createdAt": time, "updatedAt": time}

    async def answer(self, route):
        self.asked += 1
        query = urllib.parse.parse_qs(urllib.parse.urlsplit(route.request.url).query)
        newest = int(query["cursor"][0]) if "cursor" in query else self.count
        end = max(0, newest - PAGE)
        items = [self.view(number) for number in range(newest - 1, end - 1, -1)]
        await route.fulfill(json={"items": items, "nextCursor": str(end) if end > 0 else None})


class Visit:
    """A page whose time can be moved, and whose answers can be replaced."""

    def __init__(self, asked, page):
        self.asked, self.page, self.messages = asked, page, []
        page.on("pageerror", lambda error: self.messages.append(str(error)))

    async def all(self):
        page = self.page
        await page.clock.install()
        await page.goto(self.asked["api"])
        await page.get_by_label("Token").fill(self.asked["token"])
        await page.get_by_role("button", name="Sign in").click()
        await self.is_live()
        for case in (
            self.holes, self.shapes, self.drawing, self.request, self.filters, self.buttons,
            self.absent,
        ):
            await case()
            await page.unroute_all()
        return self.messages

    async def is_live(self):
        await expect(self.page.locator("#connection")).to_have_text("Live")

    async def trip(self):
        """A round trip of the page itself, by which it has taken in what came before."""
        await self.page.evaluate("fetch('livez').then((it) => it.text())")

    async def pass_time(self):
        await self.page.clock.fast_forward(AGAIN_MILLISECONDS)
        await self.trip()

    async def answer(self, route, **answer):
        """Answers, and waits until that has come."""
        async with self.page.expect_event("requestfinished", lambda it: it == route.request):
            await route.fulfill(**answer)
        await self.trip()

    async def holes(self):
        """More than a page is made between two looks: the older ones go through the hole."""
        page, exports = self.page, List(self.asked["export"])
        cards, older = page.locator(".card"), page.get_by_role("button", name="Show older ones")
        exports.count = 60
        await page.route(EXPORTS, exports.answer)
        await page.reload()
        await expect(cards).to_have_count(50)
        exports.count = 180
        await page.clock.fast_forward(AGAIN_MILLISECONDS)
        await expect(cards).to_have_count(100)
        for count in (150, 170, 180):
            await older.click()
            await expect(cards).to_have_count(count)
        await expect(older).to_be_hidden()
        last = exports.view(0)["exportJobId"]
        assert await page.evaluate(FOCUS) == last, "who showed the last ones is among them"
        shown = await page.locator(".card h3").all_inner_texts()
        assert shown == sorted(shown, reverse=True), shown
        # What is known already is no hole.
        exports.count = 181
        await page.clock.fast_forward(AGAIN_MILLISECONDS)
        await expect(cards).to_have_count(181)
        await expect(older).to_be_hidden()

        # Nobody looks at a hidden page; who comes back sees what is new without a wait.
        await page.evaluate(HIDE, True)
        exports.count, asked = 182, exports.asked
        await self.pass_time()
        assert exports.asked == asked, "a hidden page asks"
        await page.evaluate(HIDE, False)
        await expect(cards).to_have_count(182)

    async def shapes(self):
        """JSON of another shape is no answer, and is asked for again."""
        page, exports, resources = self.page, asyncio.Queue(), asyncio.Queue()
        await page.route(EXPORTS, exports.put)
        away, resource = page.locator("#away"), page.get_by_label("Resource")
        export = self.asked["export"]
        wrong = [
            {"createdAt": "x"}, {"createdAt": 7}, {"files": 7}, {"files": [None]}, {"failure": 7},
            {"sizeBytes": {}}, {"progress": {**export["progress"], "total": {}}},
        ]
        lists = [{"items": [{**export, **it}], "nextCursor": None} for it in wrong]
        lists += [{"items": [{}], "nextCursor": None}, {"items": [export], "nextCursor": 7}]
        for body in (None, [], {}, *lists):
            await page.reload()
            await self.answer(await exports.get(), body=json.dumps(body))
            await expect(away).to_contain_text("It is asked again at")
            await page.clock.fast_forward(AGAIN_MILLISECONDS)
            await (await exports.get()).continue_()
            await self.is_live()
        await page.route(RESOURCES, resources.put)
        await page.reload()
        await (await exports.get()).continue_()
        await self.answer(await resources.get(), json={})
        # The first question is another one than the one that is repeated.
        await self.answer(await resources.get(), json={"items": [{}]})
        await self.is_live()
        await expect(resource.locator("option")).to_have_count(0)
        await page.clock.fast_forward(AGAIN_MILLISECONDS)
        await (await resources.get()).continue_()
        await expect(resource.locator("option")).not_to_have_count(0)

    async def drawing(self):
        """What cannot be drawn is asked for again, and stands in the way of nothing else."""
        page, export, answers = self.page, self.asked["export"], asyncio.Queue()
        job, other = export["exportJobId"], {**export, "exportJobId": "other"}
        # A number that JSON has, and a bar has not.
        progress = {**export["progress"], "done": "ENDLESS", "total": "ENDLESS"}
        endless = {**export, "status": "FAILED", "progress": progress}
        body = json.dumps({"items": [endless, other], "nextCursor": None})
        body = body.replace('"ENDLESS"', "1e999")
        await page.route(EXPORTS, lambda route: route.fulfill(body=body))
        await page.route("**/v1/exports/*", answers.put)
        await page.reload()
        await self.is_live()
        await expect(page.locator('.card[data-id="other"]')).to_be_visible()
        await expect(page.get_by_label("Resource").locator("option")).not_to_have_count(0)
        card = page.locator(f'.card[data-id="{job}"]')
        await expect(card).to_be_hidden()
        # The list is asked for at the same time, and may be answered later.
        good = {"items": [export, other], "nextCursor": None}
        await page.route(EXPORTS, lambda route: route.fulfill(json=good))
        await page.clock.fast_forward(AGAIN_MILLISECONDS)
        await self.answer(await answers.get(), json=export)
        await expect(card).to_be_visible()
        await expect(card.locator(".badge")).to_have_text("COMPLETED")

    async def request(self):
        """Who requests an export stays on the button, and requests it once."""
        page, export, posts = self.page, self.asked["export"], asyncio.Queue()
        await page.route("**/v1/exports", posts.put)
        await page.reload()
        await expect(page.get_by_label("Resource").locator("option")).not_to_have_count(0)
        button = page.get_by_role("button", name="Request the export")
        await button.focus()
        for _ in range(2):
            await page.keyboard.press("Enter")
        held = await posts.get()
        await expect(button).to_be_focused()
        await self.answer(held, status=202, json=export)
        await expect(page.locator("#news")).to_contain_text("requested")
        await expect(button).to_be_enabled()
        await expect(button).to_be_focused()
        assert posts.empty(), "it is requested twice"

    async def filters(self):
        """What is typed is sent as it is, unless it is what the column holds."""
        page, posts = self.page, asyncio.Queue()

        async def with_columns(route):
            answer = await (await route.fetch()).json()
            columns = answer["items"][0]["columns"]
            types = {"flag": ("boolean", ["EQ", "IN"]), "day": ("date", ["IN_CURRENT"])}
            for key, (of, operators) in types.items():
                columns.append({**columns[0], "key": key, "type": of, "operators": operators})
            await route.fulfill(json=answer)

        await page.route(RESOURCES, with_columns)
        await page.route("**/v1/exports", posts.put)
        await page.reload()
        await expect(page.get_by_label("Resource").locator("option")).not_to_have_count(0)
        await page.get_by_role("button", name="Add a filter").click()
        await page.get_by_label("Column").select_option("flag")
        await page.get_by_label("Operator").select_option("IN")
        await page.get_by_label("Values").fill("true, True,no,,false")
        await page.get_by_role("button", name="Add a filter").click()
        await page.get_by_label("Column").last.select_option("day")
        units = await page.get_by_label("Unit").locator("option").all_inner_texts()
        assert units == ["day", "week", "month", "quarter", "year"], units
        await page.get_by_role("button", name="Request the export").click()
        held = await posts.get()
        asked = held.request.post_data_json["filters"]
        assert asked["flag"][0]["value"] == [True, "True", "no", "", False], asked
        assert asked["day"][0] == {"operator": "IN_CURRENT", "value": {"unit": "day"}}, asked
        await self.answer(held, status=202, json=self.asked["export"])
        await expect(page.locator("#news")).to_contain_text("requested")

    async def buttons(self):
        """A button works again whatever came, and who pressed it stays on its card."""
        page, export, reruns = self.page, self.asked["export"], asyncio.Queue()
        job = export["exportJobId"]
        listed = {"items": [export], "nextCursor": None}
        await page.route(EXPORTS, lambda route: route.fulfill(json=listed))
        await page.route("**/rerun", reruns.put)
        await page.reload()
        card, trouble = page.locator(f'.card[data-id="{job}"]'), page.locator("#trouble")
        rerun, download = (card.locator(it) for it in (".rerun", ".download"))
        await expect(rerun).to_be_visible()
        for answer in ({"body": "null"}, {"status": 503, "json": {"detail": {"a": 1}}}):
            await rerun.focus()
            await page.keyboard.press("Enter")
            held = await reruns.get()
            assert await page.evaluate(FOCUS) == job
            await self.answer(held, **answer)
            await expect(trouble).to_have_text("The service does not answer.")
            await expect(rerun).to_be_enabled()
            assert await page.evaluate(FOCUS) == job
        # What began again is later than all that the stream tells; the API says no more of it.
        own = f"**/v1/exports/{job}"
        await page.route(own, lambda _: None)
        await page.keyboard.press("Enter")
        files = {"links": {"cancel": None, "file": None}, "updatedAt": "9999-01-01T00:00:00.000Z"}
        await self.answer(await reruns.get(), json={**export, **files, "status": "PENDING"})
        await expect(rerun).to_be_hidden()
        assert await page.evaluate(FOCUS) == job
        await page.unroute(own)
        await page.reload()
        await download.focus()
        async with page.expect_download():
            await page.keyboard.press("Enter")
        await expect(download).to_be_enabled()
        assert await page.evaluate(FOCUS) == job
        # A page of somebody between is no export, whatever its status.
        downloads = []
        page.on("download", lambda it: downloads.append(it))
        sign_in = {"content_type": "text/html", "body": "<p>Sign in</p>"}
        await page.route("**/file", lambda route: route.fulfill(**sign_in))
        await page.keyboard.press("Enter")
        await expect(trouble).to_contain_text("is not the export")
        await self.trip()
        assert downloads == [], "it is saved"

    async def absent(self):
        """One 404 may be mistaken; what repeats is believed."""
        page, export, answers = self.page, self.asked["export"], asyncio.Queue()
        # The stream alone tells the end of what is listed as running.
        files = {"links": {**export["links"], "file": None}, "updatedAt": export["createdAt"]}
        running = {**export, **files, "status": "PROCESSING"}
        card = page.locator(f'.card[data-id="{export["exportJobId"]}"]')
        download = card.get_by_role("button", name="Download")
        lists = []

        async def answer_once(route):
            await route.fulfill(json={"items": lists, "nextCursor": None})
            lists.clear()

        await page.route(EXPORTS, answer_once)
        await page.route("**/v1/exports/*", answers.put)
        for refusals in (1, 3):
            lists.append(running)
            await page.reload()
            await expect(card.locator(".badge")).to_have_text("COMPLETED")
            for _ in range(refusals):
                await self.answer(await answers.get(), status=404, json={})
                await expect(download).to_be_hidden()
                await self.pass_time()
            if refusals == 1:
                await (await answers.get()).continue_()
                await expect(download).to_be_visible()
        await self.pass_time()
        assert answers.empty(), "it is asked for without end"


async def main():
    asked = json.loads(sys.argv[1])
    async with async_playwright() as playwright:
        # The sandbox needs rights that a container's root has not.
        browser = await playwright.chromium.launch(
            executable_path=asked["chromium"], args=["--no-sandbox"]
        )
        context = await browser.new_context()
        context.set_default_timeout(PATIENCE)
        visit = Visit(asked, await context.new_page())
        try:
            messages = await asyncio.wait_for(visit.all(), 3 * PATIENCE / 1_000)
        except Exception:
            # What the page showed then says more than what was waited for.
            print(await visit.page.locator("body").inner_text(), visit.messages, file=sys.stderr)
            raise
        await browser.close()
    print(json.dumps(messages))


asyncio.run(main())
