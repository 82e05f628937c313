# SPDX-License-Identifier: Apache-2.0
"""The pre- and post-processing by itself, against slow and obvious versions of the same."""

import tempfile
import unittest
import wave
from pathlib import Path

import harness  # noqa: F401  (sets the path)
import numpy as np
from npud_examples import ocr, page, vad


def flood_fill(mask):
    labels, count = np.zeros(mask.shape, dtype=int), 0
    for start in zip(*np.nonzero(mask)):
        if labels[start]:
            continue
        count += 1
        stack = [start]
        while stack:
            y, x = stack.pop()
            if 0 <= y < mask.shape[0] and 0 <= x < mask.shape[1] and mask[y, x] and not labels[y, x]:
                labels[y, x] = count
                stack += [(y + dy, x + dx) for dy in (-1, 0, 1) for dx in (-1, 0, 1)]
    return labels


class Components(unittest.TestCase):
    def test_agree_with_a_flood_fill(self):
        random = np.random.default_rng(1)
        for density in (0.1, 0.4, 0.6, 0.9):
            for shape in ((1, 1), (1, 40), (40, 1), (23, 31)):
                mask = random.random(shape) < density
                ours, expected = ocr.components(mask), flood_fill(mask)
                self.assertEqual(ours.max(), expected.max())
                pairs = set(zip(ours.ravel(), expected.ravel()))
                self.assertEqual(len(pairs), len(np.unique(expected)), "a region was split or two were joined")
                np.testing.assert_array_equal(ours > 0, mask)


class Boxes(unittest.TestCase):
    def test_grow_and_come_in_reading_order(self):
        probability = np.zeros((100, 200), dtype=np.float32)
        probability[60:70, 20:120] = 0.9
        probability[20:30, 10:60] = 0.9
        probability[20:30, 66:100] = 0.8   # the same line, after a gap
        probability[90:92, 5:7] = 0.9      # a speck
        probability[40:50, 150:190] = 0.4  # too faint
        first, second = ocr.boxes_of(probability)
        self.assertLess(first.top, 20)
        self.assertLessEqual(first.left, 10)
        self.assertGreaterEqual(first.right, 100)
        self.assertGreater(second.bottom, 70)

    def test_stay_on_the_page(self):
        probability = np.full((32, 64), 0.9, dtype=np.float32)
        (box,) = ocr.boxes_of(probability)
        self.assertEqual(tuple(box), (0, 0, 64, 32))

    def test_an_empty_page_has_none(self):
        self.assertEqual(ocr.boxes_of(np.zeros((32, 32), dtype=np.float32)), [])


class Decoding(unittest.TestCase):
    def text(self, classes, characters=("", "a", "b", " ")):
        return ocr.ctc_text(np.eye(len(characters))[classes], list(characters))[0]

    def test_repeats_collapse_and_blanks_part(self):
        self.assertEqual(self.text([0, 1, 1, 0, 1, 2, 2, 3, 3, 2, 0]), "aab b")
        self.assertEqual(self.text([0, 0, 0]), "")

    def test_a_wrong_character_list_is_noticed(self):
        with self.assertRaisesRegex(ValueError, "classes"):
            ocr.ctc_text(np.zeros((3, 5)), ["", "a"])


class Strips(unittest.TestCase):
    def test_are_48_high_and_keep_their_aspect(self):
        crop = np.full((24, 100, 3), 255, dtype=np.uint8)
        self.assertEqual(ocr.strip(crop).shape, (3, 48, 200))
        self.assertEqual(ocr.strip(crop, 192).shape, (3, 48, 192))
        padded = ocr.strip(np.full((48, 50, 3), 255, dtype=np.uint8), 192)
        self.assertTrue((padded[:, :, :50] == 1).all() and (padded[:, :, 50:] == 0).all())

    def test_pages_are_padded_for_the_detector(self):
        self.assertEqual(ocr.detector_input(np.zeros((33, 64, 3), dtype=np.uint8)).shape, (1, 3, 64, 64))
        self.assertEqual(page.as_array(page.render()).shape[0] % 32, 0)


class Recordings(unittest.TestCase):
    def write(self, rate, channels, samples):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        path = Path(directory.name) / "x.wav"
        with wave.open(str(path), "wb") as file:
            file.setnchannels(channels)
            file.setsampwidth(2)
            file.setframerate(rate)
            file.writeframes((np.repeat(samples, channels) * 32767).astype("<i2").tobytes())
        return path

    def test_a_tone_keeps_its_pitch_at_any_rate(self):
        for rate in (16000, 44100, 48000):
            times = np.arange(rate) / rate
            samples = vad.load_wav(self.write(rate, 2, 0.5 * np.sin(2 * np.pi * 440 * times)))
            self.assertAlmostEqual(len(samples), vad.RATE_HZ, delta=1)
            spectrum = np.abs(np.fft.rfft(samples[:vad.RATE_HZ]))
            self.assertAlmostEqual(spectrum.argmax() * vad.RATE_HZ / len(samples), 440, delta=2)

    def test_what_is_above_8_khz_does_not_fold_back(self):
        times = np.arange(48000) / 48000
        samples = vad.load_wav(self.write(48000, 1, 0.5 * np.sin(2 * np.pi * 11000 * times)))
        self.assertLess(np.abs(samples[200:-200]).max(), 0.02)

    def test_the_state_is_carried_from_chunk_to_chunk(self):
        seen = []

        def infer(chunk, state, rate):
            seen.append((chunk.shape, float(state[0, 0, 0]), int(rate)))
            return 0.5, state + 1

        scores = vad.speech_probabilities(np.zeros(3 * vad.CHUNK + 5, dtype=np.float32), infer)
        self.assertEqual(len(scores), 3)
        self.assertEqual(seen, [((1, vad.CONTEXT + vad.CHUNK), float(i), vad.RATE_HZ) for i in range(3)])


if __name__ == "__main__":
    unittest.main()
