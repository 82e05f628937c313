#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Scores recordings with silero_vad on npud: detect_speech.py [--address ADDRESS] FILE.wav...

Needs python3-grpcio and python3-numpy, and PYTHONPATH=BUILD/python. Without files it scores two seconds of silence. Prints a line a file;
the exit status is 0 when each file has speech in it (and silence hasn't).
"""

import argparse
import sys

import numpy as np
from npud_examples import vad
from npud_examples.client import Client, silero


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--address", help="unix:/run/npud/npud.sock, or $NPUD_ADDRESS")
    parser.add_argument("--model", default="silero_vad")
    parser.add_argument("files", nargs="*")
    args = parser.parse_args()
    well = True
    with Client(args.address) as client:
        for file in args.files or [None]:
            samples = vad.load_wav(file) if file else np.zeros(2 * vad.RATE_HZ, dtype=np.float32)
            highest = vad.speech_probabilities(samples, silero(client, args.model)).max()
            print(f"{highest:.3f}  {file or 'silence'}")
            well = well and (highest > 0.8 if file else highest < 0.5)
    return 0 if well else 1


if __name__ == "__main__":
    sys.exit(main())
