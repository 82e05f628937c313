# SPDX-License-Identifier: Apache-2.0
"""Draws the page that the demo and its test read, and shows what was read."""

from dataclasses import dataclass

import numpy as np
from PIL import Image, ImageDraw, ImageFont

FONT = "/usr/share/fonts/truetype/dejavu/DejaVuSans.ttf"


@dataclass(frozen=True)
class Line:
    text: str
    size: int  # pixels
    upside_down: bool = False


# One line is upside down: the direction classifier has to notice it.
LINES = (
    Line("One device, many tenants", 44),
    Line("Neural networks share it by the microsecond:", 30),
    Line("detection, recognition, direction, speech.", 30),
    Line("Five models take turns in 3 slots (1 core).", 30),
    Line("This line was printed upside down", 30, upside_down=True),
    Line("The quick brown fox jumps over 13 lazy dogs!", 30),
)


def render(lines=LINES, width=960, margin=48) -> Image.Image:
    """A white RGB page whose height is a multiple of 32, as the detector wants it."""
    y, places = margin, []
    for line in lines:
        places.append(y)
        y += int(line.size * 2.1)
    height = -(-(y + margin // 2) // 32) * 32
    page = Image.new("RGB", (width, height), "white")
    for line, y in zip(lines, places):
        strip = Image.new("RGB", (width - 2 * margin, int(line.size * 1.5)), "white")
        ImageDraw.Draw(strip).text((0, 0), line.text, fill=(20, 20, 30), font=ImageFont.truetype(FONT, line.size))
        page.paste(strip.rotate(180) if line.upside_down else strip, (margin, y))
    return page


def annotate(page: Image.Image, found) -> Image.Image:
    """The page with a frame round each box, and beside it the text that was read there."""
    out = Image.new("RGB", (page.width * 2, page.height + 40), "white")
    out.paste(page, (0, 40))
    draw = ImageDraw.Draw(out)
    head = ImageFont.truetype(FONT, 20)
    draw.text((48, 8), "page, with the boxes that ocr_det found", fill=(110, 110, 110), font=head)
    draw.text((page.width + 48, 8), "what ocr_rec read in them", fill=(110, 110, 110), font=head)
    draw.line((page.width, 0, page.width, out.height), fill=(210, 210, 210), width=2)
    for number, line in enumerate(found, 1):
        left, top, right, bottom = line.box
        color = (200, 90, 20) if line.upside_down else (20, 110, 200)
        draw.rectangle((left, top + 40, right, bottom + 40), outline=color, width=3)
        height = bottom - top
        size = max(12, int(height * 0.62))
        font = ImageFont.truetype(FONT, size)
        while size > 12 and draw.textlength(line.text, font=font) > page.width - 130:
            size -= 1
            font = ImageFont.truetype(FONT, size)
        x, y = page.width + 48, top + 40 + (height - size) / 2
        draw.text((x - 36, y), f"{number}", fill=(170, 170, 170), font=font)
        draw.text((x, y), line.text, fill=color, font=font)
    return out


def as_array(image: Image.Image) -> np.ndarray:
    return np.asarray(image.convert("RGB"), dtype=np.uint8)
