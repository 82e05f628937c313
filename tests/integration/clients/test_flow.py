# SPDX-License-Identifier: Apache-2.0
"""Three tenants at once on a device with fewer slots than models: what they find out is right, and nobody is starved."""

import unittest

import harness
from npud_examples import flow, ocr, page


class Flow(harness.DaemonTest):
    config = harness.CONFIG + "".join(f'[[tenant]]\nname = "{name}"\nuids = [{uid}]\n' for name, uid in flow.UIDS.items())

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        # A text of its own, not the demo's: nothing may depend on that one.
        cls.lines = (page.Line("A page for the test, 17 words long:", 40), page.Line("every letter has to come back as printed,", 30),
                     page.Line("digits 0123456789 too.", 34, upside_down=True), page.Line("Evicted models return within milliseconds", 32))
        cls.outcome = flow.run(cls.daemon.address, ocr.load_characters(cls.repository / "ocr_rec/ppocr_keys_v1.txt"), rounds=2,
                               image=page.render(cls.lines))

    def test_the_page_is_read_character_for_character(self):
        self.assertEqual([line.text for line in self.outcome.lines], [line.text for line in self.lines])
        self.assertTrue(self.outcome.rounds_alike, "two readings of one page differ")

    def test_the_line_that_is_upside_down_is_noticed(self):
        self.assertEqual([line.upside_down for line in self.outcome.lines], [line.upside_down for line in self.lines])

    def test_voices_score_high_and_silence_low(self):
        self.assertGreaterEqual(len(self.outcome.heard), 4)
        self.assertEqual({heard.is_voice for heard in self.outcome.heard}, {True, False})
        for heard in self.outcome.heard:
            for model, score in heard.scores.items():
                if heard.is_voice:
                    self.assertGreater(score, 0.8, f"{heard.name} with {model}")
                else:
                    self.assertLess(score, 0.5, f"{heard.name} with {model}")

    def test_models_came_and_went(self):
        from npud_examples.client import control_pb2
        (device,) = self.client.control.ListDevices(control_pb2.ListDevicesRequest(), timeout=10).devices
        self.assertLessEqual(device.slots_used, device.slots)
        self.assertGreater(device.evicted, 0, "five models in three slots without an eviction")
        self.assertGreaterEqual(device.brought_in, device.evicted)
        programs = self.client.control.ListPrograms(control_pb2.ListProgramsRequest(), timeout=10).programs
        self.assertEqual(sum(p.evicted for p in programs), device.evicted)
        self.assertTrue(any(p.brought_in > 1 for p in programs), "nothing was brought back")

    def test_each_tenant_was_told_apart_and_counted(self):
        from npud_examples.client import control_pb2
        import os
        if os.geteuid() != 0:
            self.skipTest("only root can give the tenants uids of their own")
        tenants = {t.tenant.name: t for t in self.client.control.ListTenants(control_pb2.ListTenantsRequest(), timeout=10).tenants}
        for name, latencies in self.outcome.requests.items():
            self.assertEqual(tenants[name].succeeded, len(latencies), name)
            self.assertEqual(tenants[name].failed, 0, name)
            self.assertGreater(tenants[name].share, 0, name)
        self.assertAlmostEqual(sum(t.share for t in tenants.values()), 1, places=3)

    def test_every_answer_says_where_it_ran(self):
        total = sum(len(latencies) for latencies in self.outcome.requests.values())
        self.assertEqual(self.outcome.paths, {"device=host": total})


if __name__ == "__main__":
    unittest.main()
