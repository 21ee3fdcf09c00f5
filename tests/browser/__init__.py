"""What people do, in a real browser: Chromium, driven by Playwright."""
