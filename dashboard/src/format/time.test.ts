import { expect, it } from "vitest";
import { ago, dateIn, duration, isMoment, moment, monthName, shiftMonth, span } from "./time";

it("moments are shown in UTC, whatever the machine's zone", () => {
  expect(moment("2026-11-29T23:59:59Z", "utc")).toBe("2026-11-29 23:59");
});

it("local moments follow the machine's zone", () => {
  const old = process.env.TZ;
  process.env.TZ = "Asia/Kolkata";
  try {
    // Half an hour off, and the next day: a wrong zone cannot look right.
    expect(moment("2026-11-29T23:59:59Z", "local")).toBe("2026-11-30 05:29");
    expect(moment("2026-11-29T23:59:59Z", "utc")).toBe("2026-11-29 23:59");
  } finally {
    process.env.TZ = old;
  }
});

it("a time that means never is a dash", () => {
  for (const none of [null, undefined, "", "0001-01-01T00:00:00Z", "1970-01-01T00:00:00Z", "2106-02-07T06:28:15Z"]) {
    expect(moment(none, "utc")).toBe("\u2013");
    expect(isMoment(none)).toBe(false);
  }
});

it("a window says its day once", () => {
  expect(span("2026-11-29T10:00:00Z", "2026-11-29T11:00:00Z", "utc")).toBe("2026-11-29 10:00\u201311:00");
  expect(span("2026-11-29T23:00:00Z", "2026-11-30T00:00:00Z", "utc")).toBe("2026-11-29 23:00 \u2013 2026-11-30 00:00");
});

it("durations keep the two largest units", () => {
  expect([0.25, 42, 59.6, 60, 3599, 3660, 90061].map(duration)).toEqual(["0.3 s", "42 s", "60 s", "1 min", "1 h", "1 h 1 min", "1 d 1 h"]);
});

it("ages are in words", () => {
  const now = new Date("2026-11-29T12:00:00Z");
  expect(ago("2026-11-29T11:59:30Z", now)).toBe("just now");
  expect(ago("2026-11-29T09:30:00Z", now)).toBe("2 h 30 min ago");
});

it("months cross years", () => {
  expect([shiftMonth("2026-01", -1), shiftMonth("2026-12", 1), shiftMonth("2026-11", 0)]).toEqual(["2025-12", "2027-01", "2026-11"]);
  expect(monthName("2026-11")).toBe("November 2026");
});

it("a date is that of the zone, not of UTC", () => {
  expect(dateIn("2026-10-31T23:00:00Z", "Europe/Berlin")).toBe("2026-11-01");
  expect(dateIn("2026-10-31T22:59:59Z", "Europe/Berlin")).toBe("2026-10-31");
  expect(dateIn("2026-11-01T00:00:00Z", "America/New_York")).toBe("2026-10-31");
  expect(dateIn("2026-11-01T00:00:00Z", "UTC")).toBe("2026-11-01");
  expect(dateIn("no moment", "UTC")).toBe("no moment");
});
