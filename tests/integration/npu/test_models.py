# SPDX-License-Identifier: Apache-2.0
"""Text is read and voices are heard with the heavy nodes on the NPU, as on the host."""

import unittest

import harness
import numpy as np
from npud_examples import ocr, page, vad
from npud_examples.client import control_pb2, network, silero

NETWORKS = ("ocr_det", "ocr_cls", "ocr_rec", "silero_vad")


class Models(harness.NpuTest):
    @classmethod
    def lay(cls, repository):
        harness.lay_models(repository, NETWORKS)

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.characters = ocr.load_characters(cls.repository / "ocr_rec/ppocr_keys_v1.txt")
        cls.lines = (page.Line("An NPU reads 42 words", 28), page.Line("and this one backwards", 26, upside_down=True))
        cls.pixels = page.as_array(page.render(cls.lines, width=416, margin=24))

    def read(self, suffix):
        boxes = ocr.find_lines(self.pixels, network(self.client, "ocr_det" + suffix))
        return [ocr.read_line(self.pixels, box, self.characters, network(self.client, "ocr_cls" + suffix),
                              network(self.client, "ocr_rec" + suffix)) for box in boxes]

    def test_text_is_what_was_printed_and_what_the_host_reads(self):
        self.client.paths.clear()
        ours = self.read("")
        self.assertEqual(set(self.client.paths), {"device=rknpu0+host"})
        reference = self.read("_host")
        self.assertEqual([line.text for line in ours], [line.text for line in self.lines])
        self.assertEqual([(line.text, line.upside_down) for line in ours], [(line.text, line.upside_down) for line in reference])
        for a, b in zip(ours, reference, strict=True):
            self.assertAlmostEqual(a.score, b.score, delta=0.01)

    def test_the_map_of_text_is_the_hosts_within_a_twentieth(self):
        x = ocr.detector_input(self.pixels[:96, :160])
        ours, reference = (network(self.client, name)(x) for name in ("ocr_det", "ocr_det_host"))
        self.assertEqual(ours.shape, reference.shape)
        self.assertLess(np.abs(ours - reference).max(), 0.05)
        self.assertGreater(reference.max(), 0.5, "nothing was found, so nothing was compared")

    def test_voices_are_heard_as_on_the_host(self):
        from npud_examples.flow import SOUNDS
        samples = vad.load_wav(SOUNDS / "Front_Center.wav")[:vad.RATE_HZ]
        ours, reference = (vad.speech_probabilities(samples, silero(self.client, name)) for name in ("silero_vad", "silero_vad_host"))
        self.assertGreater(reference.max(), 0.8)
        self.assertLess(np.abs(ours - reference).max(), 0.02)

    def test_explain_says_where_each_node_runs(self):
        network(self.client, "ocr_rec")(np.zeros((1, 3, 48, 64), dtype=np.float32))
        told = self.client.control.Explain(control_pb2.ExplainRequest(model="ocr_rec"), timeout=10)
        on_npu = [n for n in told.nodes if n.device == "rknpu0"]
        self.assertGreater(len(on_npu), 40)
        self.assertTrue(all(n.runs > 0 and n.precision == "fp16" and n.weight_bytes > 0 for n in on_npu))
        self.assertIn("on rknpu0", told.summary)
        for node in told.nodes:
            if node.device == "host":
                self.assertIn("aren't constant", node.reason, node.name)
        (whole,) = self.client.control.Explain(control_pb2.ExplainRequest(model="ocr_rec_host"), timeout=10).nodes
        self.assertEqual(whole.device, "host")


if __name__ == "__main__":
    unittest.main()
