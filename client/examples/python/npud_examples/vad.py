# SPDX-License-Identifier: Apache-2.0
"""Silero VAD over a recording: one request a chunk, the network's state carried from chunk to chunk by the client.

`infer(input: float32 [1,n], state: float32 [2,1,128], sr: int64 []) -> (probability of speech, next state)`.
"""

import wave

import numpy as np

RATE_HZ = 16000
CHUNK = 512
CONTEXT = 64  # version 5 sees the last samples of the chunk before, too


def load_wav(path) -> np.ndarray:
    """Mono float32 at 16 kHz from a PCM file of 16 bits. Other rates are filtered (windowed sinc) and resampled."""
    with wave.open(str(path)) as file:
        if file.getsampwidth() != 2:
            raise ValueError(f"{path}: {8 * file.getsampwidth()} bits a sample; 16 are supported")
        rate = file.getframerate()
        samples = np.frombuffer(file.readframes(file.getnframes()), dtype="<i2").astype(np.float32) / 32768
        samples = samples.reshape(-1, file.getnchannels()).mean(axis=1)
    if rate == RATE_HZ:
        return samples
    if rate > RATE_HZ:
        taps = np.arange(-64, 65)
        kernel = np.sinc(taps * (0.95 * RATE_HZ / rate)) * np.hamming(len(taps))
        samples = np.convolve(samples, kernel / kernel.sum(), mode="same")
    times = np.arange(int(len(samples) * RATE_HZ / rate)) * (rate / RATE_HZ)
    return np.interp(times, np.arange(len(samples)), samples).astype(np.float32)


def speech_probabilities(samples: np.ndarray, infer) -> np.ndarray:
    state = np.zeros((2, 1, 128), dtype=np.float32)
    context = np.zeros(CONTEXT, dtype=np.float32)
    rate = np.array(RATE_HZ, dtype=np.int64)
    scores = []
    for start in range(0, len(samples) - CHUNK + 1, CHUNK):
        chunk = samples[start:start + CHUNK]
        probability, state = infer(np.concatenate([context, chunk])[None], state, rate)
        context = chunk[-CONTEXT:]
        scores.append(float(probability))
    return np.array(scores)
