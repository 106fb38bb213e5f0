"""Default rental prices of accelerators; look up the current ones."""

import datetime

# Google Cloud's list prices on demand in its cheapest US region, where one is
# published. Other sources and contracts differ by up to four times. No list
# price of TPU7x was found (2026-11-22): give --price.
AS_OF = datetime.date(2025, 6, 1)
USD_PER_CHIP_HOUR = {
  'v2': 1.13,
  'v3': 2.00,
  'v4': 3.22,
  'v5e': 1.20,
  'v5p': 4.20,
  'v6e': 2.70,
  'a100-40gb': 3.67,
  'a100-80gb': 5.07,
  'h100': 11.06,
}
