/**
 * Open pages in Firefox or Chromium over WebDriver BiDi and print what each one says, as JSON.
 *
 * node open_pages.mjs firefox /usr/bin/firefox-esr dark 390 http://127.0.0.1:8321/jobs ...
 *
 * For each address: console errors and uncaught exceptions, the heading, the notes of the charts, what they read out for the
 * first place to which the arrow key moves, and whether the page scrolls sideways; and the colour scheme that the browser reports. Of
 * the picture of a verdict: its texts, where the ends of its lines stand, what the cursor reads, and the same zoomed in.
 */
import puppeteer from "puppeteer-core";

const PATIENCE = 120_000; // ms; a busy machine starts a browser in half a minute
const [browserName, executablePath, scheme, width, ...addresses] = process.argv.slice(2);

/** The picture of a verdict: its texts, and places in percent of the plot. */
function readPicture() {
  const picture = document.querySelector(".screen > .pic");
  if (!picture) return null;
  const area = picture.querySelector(".area").getBoundingClientRect();
  const across = (x) => Math.round((100 * (x - area.left)) / area.width);
  const down = (y) => Math.round((100 * (y - area.top)) / area.height);
  const matrix = picture.querySelector(".area svg.s").getScreenCTM();
  const ends = [...picture.querySelectorAll(".cv .line")].map((line) => {
    const [x, y] = line.getAttribute("d").split("L").at(-1).split(" ").map(Number);
    const at = new DOMPoint(x, y).matrixTransform(matrix);
    return [across(at.x), down(at.y)];
  });
  const texts = [...picture.querySelectorAll("text, figcaption .r")].filter((text) => text.checkVisibility()).map((text) => text.textContent);
  return { texts, ends };
}

/** What the charts of a page say, after each of them was scrolled into view and has loaded. */
async function read(page) {
  await page.evaluate(() => {
    for (const details of document.querySelectorAll(".verdict-page .more > details")) details.open = true;
  });
  await page.waitForFunction(
    () => {
      const waiting = [...document.querySelectorAll("figure .note")].find((note) => note.checkVisibility() && note.textContent.includes("Loading"));
      waiting?.scrollIntoView();
      return !waiting;
    },
    { polling: 100, timeout: PATIENCE },
  );
  for (const plot of await page.$$("figure .plot[tabindex]")) {
    if (!(await plot.evaluate((element) => element.checkVisibility() && Boolean(element.querySelector("canvas"))))) continue;
    await plot.focus();
    await page.keyboard.press("ArrowRight");
  }
  const pictures = [await page.evaluate(readPicture)];
  if (pictures[0]) {
    await page.focus(".screen > .pic .plot");
    for (const key of ["ArrowLeft", "Escape", "+"]) {
      await page.keyboard.press(key);
      pictures.push(await page.evaluate(readPicture));
    }
    await page.keyboard.press("0");
  }
  const told = await page.evaluate(() => {
    const texts = (selector) =>
      [...document.querySelectorAll(selector)].filter((element) => element.checkVisibility()).map((element) => element.textContent.replace(/\s+/g, " ").trim());
    return {
      heading: texts("h1"),
      notes: texts("figure .note"),
      readouts: texts("figure .readout, figure .tip"),
      sideways: document.documentElement.scrollWidth > innerWidth,
      scheme: matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light",
    };
  });
  return { ...told, pictures };
}

const isDark = scheme === "dark";
const args = browserName === "chrome" ? ["--no-sandbox", "--disable-gpu", `--blink-settings=preferredColorScheme=${isDark ? 0 : 1}`] : [];
const extraPrefsFirefox = { "layout.css.prefers-color-scheme.content-override": isDark ? 0 : 1 };
const options = { browser: browserName, executablePath, args, extraPrefsFirefox, protocol: "webDriverBiDi", headless: true, timeout: PATIENCE, protocolTimeout: PATIENCE };
const browser = await puppeteer.launch(options);
try {
  const pages = [];
  for (const address of addresses) {
    const page = await browser.newPage();
    const problems = [];
    page.on("console", (message) => ["error", "warn"].includes(message.type()) && problems.push(message.text()));
    page.on("pageerror", (error) => problems.push(String(error)));
    await page.setViewport({ width: Number(width), height: 900 });
    await page.goto(address, { waitUntil: "load", timeout: PATIENCE });
    pages.push({ address, ...(await read(page)), problems });
    await page.close();
  }
  console.log(JSON.stringify({ version: await browser.version(), pages }));
} finally {
  await browser.close().catch(() => {}); // it may be gone already, and what it showed is printed
}
