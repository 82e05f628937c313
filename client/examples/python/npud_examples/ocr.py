# SPDX-License-Identifier: Apache-2.0
"""PP-OCRv4's pre- and post-processing: page -> boxes -> crops -> text.

The three networks are called through functions that take and give numpy arrays, so that it does not matter where they run:
  detect(x: float32 [1,3,H,W], H and W multiples of 32) -> float32 [1,1,H,W], probability that a pixel is text
  classify(x: float32 [n,3,48,192])                     -> float32 [n,2], probability of upright and of upside down
  recognize(x: float32 [1,3,48,W])                      -> float32 [1,T,C], class probabilities for T columns
"""

from dataclasses import dataclass

import numpy as np
from PIL import Image

DETECT_MEAN = np.array([0.485, 0.456, 0.406], dtype=np.float32)
DETECT_STD = np.array([0.229, 0.224, 0.225], dtype=np.float32)


@dataclass(frozen=True)
class Box:
    """Pixels of the page, right and bottom exclusive."""

    left: int
    top: int
    right: int
    bottom: int
    score: float

    def __iter__(self):
        return iter((self.left, self.top, self.right, self.bottom))


@dataclass(frozen=True)
class ReadLine:
    box: Box
    text: str
    score: float
    upside_down: bool


def detector_input(page: np.ndarray) -> np.ndarray:
    """page: uint8 [H,W,3]; padded with white to multiples of 32."""
    height, width = page.shape[:2]
    padded = np.full((-(-height // 32) * 32, -(-width // 32) * 32, 3), 255, dtype=np.uint8)
    padded[:height, :width] = page
    x = (padded.astype(np.float32) / 255 - DETECT_MEAN) / DETECT_STD
    return np.ascontiguousarray(x.transpose(2, 0, 1)[None])


def components(mask: np.ndarray) -> np.ndarray:
    """Labels (0: background, then 1…n) of the 8-connected regions of a boolean image, by runs and union-find."""
    parent = [0]

    def find(i):
        while parent[i] != i:
            parent[i] = parent[parent[i]]
            i = parent[i]
        return i

    labels = np.zeros(mask.shape, dtype=np.int32)
    above = []  # runs of the row above: (first, end, label)
    for y in range(mask.shape[0]):
        edges = np.flatnonzero(np.diff(np.concatenate(([0], mask[y].view(np.int8), [0]))))
        runs = []
        for first, end in zip(edges[::2], edges[1::2]):
            label = 0
            for a_first, a_end, a_label in above:
                if a_first <= end and first <= a_end:  # touching corners count
                    root = find(a_label)
                    if label == 0:
                        label = root
                    elif root != label:
                        low, high = min(root, label), max(root, label)
                        parent[high] = low
                        label = low
            if label == 0:
                label = len(parent)
                parent.append(label)
            labels[y, first:end] = label
            runs.append((first, end, label))
        above = runs
    roots = np.array([find(i) for i in range(len(parent))])
    _, dense = np.unique(roots, return_inverse=True)
    return dense[labels]


def boxes_of(probability: np.ndarray, threshold=0.3, box_threshold=0.6, unclip_ratio=1.6, smallest=3) -> list[Box]:
    """DB post-processing for lines that run across: the network marks the kernel of each line, which is grown again by
    area * ratio / perimeter. Boxes on one line are joined; the result is in reading order."""
    height, width = probability.shape
    labels = components(probability > threshold)
    boxes = []
    for label in range(1, labels.max() + 1):
        ys, xs = np.nonzero(labels == label)
        left, right, top, bottom = xs.min(), xs.max() + 1, ys.min(), ys.max() + 1
        if min(right - left, bottom - top) < smallest:
            continue
        score = float(probability[ys, xs].mean())
        if score < box_threshold:
            continue
        w, h = right - left, bottom - top
        grow = int(round(w * h * unclip_ratio / (2 * (w + h))))
        boxes.append(Box(max(0, int(left) - grow), max(0, int(top) - grow), min(width, int(right) + grow),
                         min(height, int(bottom) + grow), score))
    return join_lines(boxes)


def join_lines(boxes: list[Box]) -> list[Box]:
    lines: list[Box] = []
    for box in sorted(boxes, key=lambda b: (b.top, b.left)):
        for i, line in enumerate(lines):
            overlap = min(line.bottom, box.bottom) - max(line.top, box.top)
            gap = max(line.left, box.left) - min(line.right, box.right)
            low = min(line.bottom - line.top, box.bottom - box.top)
            if overlap > 0.5 * low and gap < 1.5 * low:
                lines[i] = Box(min(line.left, box.left), min(line.top, box.top), max(line.right, box.right),
                               max(line.bottom, box.bottom), min(line.score, box.score))
                break
        else:
            lines.append(box)
    return sorted(lines, key=lambda b: (b.top, b.left))


def strip(crop: np.ndarray, width: int | None = None) -> np.ndarray:
    """A crop (uint8 [h,w,3]) as float32 [3,48,W] in -1…1: W keeps the aspect, or is padded to (or squeezed into) `width`."""
    w = max(16, round(crop.shape[1] * 48 / crop.shape[0]))
    if width is not None:
        w = min(w, width)
    resized = np.asarray(Image.fromarray(crop).resize((w, 48), Image.Resampling.BILINEAR), dtype=np.float32)
    x = (resized / 255 - 0.5) / 0.5
    if width is not None and w < width:
        x = np.concatenate([x, np.zeros((48, width - w, 3), dtype=np.float32)], axis=1)
    return np.ascontiguousarray(x.transpose(2, 0, 1))


def load_characters(path) -> list[str]:
    """Class i of the recogniser: 0 is CTC's blank, then the file's lines, then the space."""
    with open(path, encoding="utf-8") as file:
        return ["", *(line.rstrip("\n") for line in file), " "]


def ctc_text(probabilities: np.ndarray, characters: list[str]) -> tuple[str, float]:
    """Greedy decoding of [T,C]: repeats collapse, blanks vanish. Returns the text and the mean probability of its characters."""
    if probabilities.shape[1] != len(characters):
        raise ValueError(f"the recogniser has {probabilities.shape[1]} classes, the character list {len(characters)}")
    best = probabilities.argmax(axis=1)
    keep = (best != 0) & np.concatenate(([True], best[1:] != best[:-1]))
    score = float(probabilities[np.flatnonzero(keep), best[keep]].mean()) if keep.any() else 0.0
    return "".join(characters[i] for i in best[keep]), score


def crop_of(page: np.ndarray, box: Box) -> np.ndarray:
    """With an eighth of its height as margin: letters that touch the edge are read less well."""
    margin = (box.bottom - box.top) // 8
    return page[max(0, box.top - margin):box.bottom + margin, max(0, box.left - margin):box.right + margin]


def find_lines(page: np.ndarray, detect) -> list[Box]:
    probability = detect(detector_input(page))[0, 0]
    return boxes_of(probability[:page.shape[0], :page.shape[1]])


def turned(crop: np.ndarray, classify) -> bool:
    upright, upside_down = classify(strip(crop, 192)[None])[0]
    return bool(upside_down > 0.9 and upside_down > upright)


def read_line(page: np.ndarray, box: Box, characters: list[str], classify, recognize) -> ReadLine:
    crop = crop_of(page, box)
    upside_down = turned(crop, classify)
    if upside_down:
        crop = crop[::-1, ::-1]
    text, score = ctc_text(recognize(strip(crop)[None])[0], characters)
    return ReadLine(box, text.strip(), score, upside_down)
