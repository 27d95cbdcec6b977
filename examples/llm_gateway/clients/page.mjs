// The page in chromium: an answer survives a reload, and is stopped by the button.
import assert from "node:assert/strict"
import puppeteer from "puppeteer-core"

const { CHROMIUM, GATEWAY } = process.env
const browser = await puppeteer.launch({ executablePath: CHROMIUM, args: ["--no-sandbox"], timeout: 120000 })
try {
  const page = await browser.newPage()
  page.setDefaultNavigationTimeout(120000)
  const errors = []
  page.on("pageerror", error => errors.push(error.message))
  const text = selector => page.$eval(selector, element => element.textContent)
  const until = (selector, part) => page.waitForFunction(
    (selector, part) => document.querySelector(selector).textContent.includes(part), { timeout: 60000 }, selector, part)
  await page.goto(`${GATEWAY}/`)
  // An answer that takes longer than a busy machine needs for a reload.
  const words = Array.from({ length: 50 }, (_, n) => `word${n}`).join(" ")
  const whole = `You said: ${words} These are 50 words.`
  await page.type("#prompt", words)
  await page.click("#send")
  await until("#state", "Error: send a valid key")
  await page.type("#key", "s3cret")
  await page.click("#send")
  await until("#answer", "word0")
  await page.reload()
  await until("#answer", "word0")
  assert.notEqual(await text("#answer"), whole, "the reload is in the middle of the answer")
  await until("#state", "The answer has ended.")
  assert.equal(await text("#answer"), whole)
  // After the end, too.
  await page.reload()
  await until("#state", "The answer has ended.")
  assert.equal(await text("#answer"), whole)

  await page.type("#prompt", words)
  await page.click("#send")
  await until("#answer", "word0")
  await page.click("#stop")
  await until("#state", "The answer was stopped.")
  const short = await text("#answer")
  assert.ok(whole.startsWith(short) && short !== whole, short)
  assert.deepEqual(errors, [])
  console.log(`ok the page in ${await browser.version()}: a reload in the middle, one after the end, the stop button`)
} finally {
  await browser.close()
}
