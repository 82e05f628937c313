# SPDX-License-Identifier: Apache-2.0
"""Three tenants at once on one npud: one finds the lines of a page, one turns and reads them, one listens to recordings.

Each is a process with a uid of its own (where the caller may set it), since that is how npud tells tenants apart.
"""

import multiprocessing
import os
import queue
import time
import traceback
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from . import ocr, page, vad
from .client import Client, network, silero

SOUNDS = Path("/usr/share/sounds/alsa")
UIDS = {"finder": 61001, "reader": 61002, "listener": 61003}
VAD_MODELS = ("silero_vad", "silero_vad_v6")


@dataclass
class Heard:
    name: str
    is_voice: bool
    scores: dict  # model -> highest probability of speech in the recording


@dataclass
class Outcome:
    lines: list = field(default_factory=list)  # ocr.ReadLine, of the last round
    rounds_alike: bool = True                  # every round read the same
    heard: list = field(default_factory=list)
    requests: dict = field(default_factory=dict)  # tenant -> latencies in us, as the tenant saw them
    paths: Counter = field(default_factory=Counter)
    elapsed_s: float = 0


def recordings():
    """(name, is it a voice, samples): alsa-utils' spoken channel names, its noise, and silence."""
    out = [(file.stem.replace("_", " "), file.stem != "Noise", vad.load_wav(file)) for file in sorted(SOUNDS.glob("*.wav"))]
    if not out:
        raise FileNotFoundError(f"no recordings in {SOUNDS}: install alsa-utils")
    return [*out, ("two seconds of silence", False, np.zeros(2 * vad.RATE_HZ, dtype=np.float32))]


def _find(client, tell, rounds, pixels, boxes):
    for number in range(rounds):
        found = ocr.find_lines(pixels, network(client, "ocr_det"))
        tell(f"finder: {len(found)} lines on the page (round {number + 1} of {rounds})")
        boxes.send(found)


def _read(client, tell, rounds, pixels, boxes, characters):
    classify, recognize = network(client, "ocr_cls"), network(client, "ocr_rec")
    read_rounds = []
    for number in range(rounds):
        found = boxes.recv()
        read_rounds.append([ocr.read_line(pixels, box, characters, classify, recognize) for box in found])
        tell(f"reader: {len(found)} lines turned and read (round {number + 1} of {rounds})")
    return read_rounds


def _listen(client, tell, sounds):
    heard = []
    for name, is_voice, samples in sounds:
        scores = {m: float(vad.speech_probabilities(samples, silero(client, m)).max()) for m in VAD_MODELS}
        heard.append(Heard(name, is_voice, scores))
        tell(f"listener: {name}")
    return heard


def _tenant(name, address, out, work, *args):
    """Runs in a process of its own: takes the tenant's uid, works, sends (name, kind, what) to `out`."""
    try:
        if os.geteuid() == 0:
            os.setgroups([])
            os.setresgid(UIDS[name], UIDS[name], UIDS[name])
            os.setresuid(UIDS[name], UIDS[name], UIDS[name])
        with Client(address) as client:
            client.wait_until_ready()
            result = work(client, lambda text: out.put((name, "progress", text)), *args)
            out.put((name, "done", (result, client.latencies_us, dict(client.paths))))
    except BaseException:  # the parent shows it and gives up
        out.put((name, "failed", traceback.format_exc()))


def run(address, characters, rounds=3, image=None, progress=lambda text: None, timeout_s=600):
    """Returns an Outcome; RuntimeError with the tenant's traceback when one fails, or when they aren't done in time."""
    # Not forked: a process that has used gRPC can't go on in a child.
    context = multiprocessing.get_context("spawn")
    out = context.Queue()
    boxes_out, boxes_in = context.Pipe(duplex=False)
    pixels = page.as_array(image or page.render())
    begin = time.monotonic()
    processes = [
        context.Process(target=_tenant, args=(name, address, out, *work), name=f"npud-{name}", daemon=True)
        for name, *work in (("finder", _find, rounds, pixels, boxes_in), ("reader", _read, rounds, pixels, boxes_out, characters),
                            ("listener", _listen, recordings()))
    ]
    for process in processes:
        process.start()
    results = {}
    try:
        while len(results) < len(processes):
            try:
                name, kind, what = out.get(timeout=max(0.1, begin + timeout_s - time.monotonic()))
            except queue.Empty:
                working = [p.name for p in processes if p.name.removeprefix("npud-") not in results]
                raise RuntimeError(f"not done after {timeout_s} s: {', '.join(working)}") from None
            if kind == "progress":
                progress(what)
            elif kind == "failed":
                raise RuntimeError(f"the tenant '{name}' failed:\n{what}")
            else:
                results[name] = what
        elapsed_s = time.monotonic() - begin
    finally:
        for process in processes:
            if len(results) < len(processes):
                process.kill()
            process.join(30)
            if process.is_alive():
                process.kill()
                process.join()
    read_rounds = results["reader"][0]
    outcome = Outcome(lines=read_rounds[-1], heard=results["listener"][0], elapsed_s=elapsed_s)
    outcome.rounds_alike = all([line.text for line in r] == [line.text for line in read_rounds[0]] for r in read_rounds)
    for name, (_, latencies, paths) in results.items():
        outcome.requests[name] = latencies
        outcome.paths.update(paths)
    return outcome
