// The page in chromium: an answer survives a reload, and is stopped by the button.
import assert from "node:assert/strict"
import puppeteer from "puppeteer-core"

const { CHROMIUM, GATEWAY } = process.env
const browser = await puppeteer.launch({ executablePath: CHROMIUM, args: ["--no-sandbox"] })
try {
  const page = await browser.newPage()
  const errors = []
  page.on("pageerror", error => errors.push(error.message))
  const text = selector => page.$eval(selector, element => element.textContent)
  const until = (selector, part) => page.waitForFunction(
    (selector, part) => document.querySelector(selector).textContent.includes(part), { timeout: 30000 }, selector, part)
  await page.goto(`${GATEWAY}/`)
  await page.type("#prompt", "one two three")
  await page.click("#send")
  await until("#state", "Error: send a valid key")
  await page.type("#key", "s3cret")
  await page.click("#send")
  await until("#answer", "one")
  await page.reload()
  await until("#answer", "one")
  assert.ok(!(await text("#answer")).includes("words."), "the reload is in the middle of the answer")
  await until("#state", "The answer has ended.")
  assert.equal(await text("#answer"), "You said: one two three These are 3 words.")
  // After the end, too.
  await page.reload()
  await until("#state", "The answer has ended.")
  assert.equal(await text("#answer"), "You said: one two three These are 3 words.")

  await page.type("#prompt", "four five six seven eight nine ten")
  await page.click("#send")
  await until("#answer", "four")
  await page.click("#stop")
  await until("#state", "The answer was stopped.")
  const short = await text("#answer")
  assert.ok(short.startsWith("You said: four") && !short.includes("words."), short)
  assert.deepEqual(errors, [])
  console.log(`ok the page in ${await browser.version()}: a reload in the middle, one after the end, the stop button`)
} finally {
  await browser.close()
}
