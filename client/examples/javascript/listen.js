#!/usr/bin/env node
// SPDX-License-Identifier: Apache-2.0
// A foreign client: @grpc/grpc-js and @grpc/proto-loader, which read npud's .proto files as they are. Nothing is generated.
//
//   NODE_PATH=$(tools/models node-modules) node listen.js ADDRESS RECORDING.wav
//
// Streams the recording through silero_vad, 512 samples a request, carrying the network's state; prints the highest probability of speech.
// Then provokes errors and checks that they say what is wrong. Exit status 0 when everything was as it should be.
'use strict';

const fs = require('fs');
const path = require('path');
const grpc = require('@grpc/grpc-js');
const protoLoader = require('@grpc/proto-loader');

const PROTOS = path.resolve(__dirname, '../../../proto');
const CHUNK = 512;
const CONTEXT = 64;
const RATE_HZ = 16000;

function check(condition, text) {
  if (!condition) throw new Error(text);
}

// Mono samples in -1…1 at 16 kHz, of a 16-bit PCM file; every third sample of 48 kHz after a mean over three.
function readWav(file) {
  const data = fs.readFileSync(file);
  check(data.toString('latin1', 0, 4) === 'RIFF' && data.toString('latin1', 8, 12) === 'WAVE', `${file} is no WAV file`);
  let rate = 0, channels = 0, samples = null;
  for (let at = 12; at + 8 <= data.length;) {
    const id = data.toString('latin1', at, at + 4), size = data.readUInt32LE(at + 4);
    if (id === 'fmt ') {
      check(data.readUInt16LE(at + 8) === 1 && data.readUInt16LE(at + 22) === 16, `${file} isn't 16-bit PCM`);
      channels = data.readUInt16LE(at + 10);
      rate = data.readUInt32LE(at + 12);
    } else if (id === 'data') {
      samples = data.subarray(at + 8, at + 8 + size);
    }
    at += 8 + size + (size & 1);
  }
  check(samples !== null && channels > 0 && rate % RATE_HZ === 0, `${file}: ${rate} Hz can't be brought to ${RATE_HZ}`);
  const step = rate / RATE_HZ, frame = 2 * channels, out = [];
  for (let i = 0; (i + step) * frame <= samples.length; i += step) {
    let sum = 0;
    for (let k = 0; k < step; ++k) sum += samples.readInt16LE((i + k) * frame);
    out.push(sum / step / 32768);
  }
  return out;
}

function rawFloats(values) {
  return Buffer.from(Float32Array.from(values).buffer);
}

function call(client, method, request) {
  return new Promise((resolve, reject) => {
    const deadline = new Date(Date.now() + 120000);
    let path = '';
    const pending = client[method](request, {deadline}, (error, response) => {
      if (error) return reject(error);
      pending.on('status', () => resolve({response, path}));
    });
    pending.on('status', (status) => { path = (status.metadata.get('npud-path')[0] || '').toString(); });
  });
}

async function refused(promise, code, part) {
  try {
    await promise;
  } catch (error) {
    check(error.code === code, `status ${error.code} (${error.details}) instead of ${code}`);
    check(error.details.includes(part), `"${error.details}" doesn't mention ${part}`);
    console.log(`refused, as it should be: ${error.details}`);
    return;
  }
  throw new Error(`a bad request was answered (${part})`);
}

async function main() {
  const [address, recording] = process.argv.slice(2);
  check(address && recording, 'usage: listen.js ADDRESS RECORDING.wav');
  const definition = protoLoader.loadSync('inference/grpc_service.proto', {includeDirs: [PROTOS], keepCase: true, longs: String, defaults: true});
  const {inference} = grpc.loadPackageDefinition(definition);
  const client = new inference.GRPCInferenceService(address, grpc.credentials.createInsecure());

  const {response: live} = await call(client, 'ServerLive', {});
  check(live.live, 'the server says it is not alive');
  const {response: metadata} = await call(client, 'ModelMetadata', {name: 'silero_vad'});
  check(metadata.inputs.map((i) => i.name).sort().join() === 'input,sr,state', 'silero_vad has other inputs than expected');

  const samples = readWav(recording);
  const rate = Buffer.alloc(8);
  rate.writeBigInt64LE(BigInt(RATE_HZ));
  let state = rawFloats(new Array(2 * 128).fill(0)), context = new Array(CONTEXT).fill(0);
  let highest = 0, requests = 0;
  const paths = new Set();
  for (let at = 0; at + CHUNK <= samples.length; at += CHUNK) {
    const chunk = samples.slice(at, at + CHUNK);
    const request = {
      model_name: 'silero_vad',
      id: `chunk-${requests}`,
      inputs: [
        {name: 'input', datatype: 'FP32', shape: [1, CONTEXT + CHUNK]},
        {name: 'state', datatype: 'FP32', shape: [2, 1, 128]},
        {name: 'sr', datatype: 'INT64', shape: []},
      ],
      raw_input_contents: [rawFloats([...context, ...chunk]), state, rate],
    };
    const {response, path} = await call(client, 'ModelInfer', request);
    check(response.id === request.id, 'the answer has another id');
    const names = response.outputs.map((o) => o.name);
    check(names.includes('output') && names.includes('stateN'), `outputs ${names} were not expected`);
    const score = response.raw_output_contents[names.indexOf('output')];
    check(score.length === 4, 'the score is no FP32');
    highest = Math.max(highest, score.readFloatLE(0));
    state = response.raw_output_contents[names.indexOf('stateN')];
    check(state.length === 4 * 2 * 128, 'the state has another size');
    context = chunk.slice(-CONTEXT);
    paths.add(path);
    ++requests;
  }
  console.log(`highest probability of speech ${highest.toFixed(3)} in ${requests} requests, path ${[...paths].join(', ')}`);
  check([...paths].every((p) => p.startsWith('device=')), 'npud did not say where the requests ran');

  // Typed contents instead of raw ones: another client's way to say the same.
  const {response: typed} = await call(client, 'ModelInfer', {
    model_name: 'silero_vad',
    inputs: [
      {name: 'input', datatype: 'FP32', shape: [1, CONTEXT + CHUNK], contents: {fp32_contents: new Array(CONTEXT + CHUNK).fill(0)}},
      {name: 'state', datatype: 'FP32', shape: [2, 1, 128], contents: {fp32_contents: new Array(256).fill(0)}},
      {name: 'sr', datatype: 'INT64', shape: [], contents: {int64_contents: [RATE_HZ]}},
    ],
  });
  const quiet = typed.raw_output_contents[typed.outputs.findIndex((o) => o.name === 'output')].readFloatLE(0);
  check(quiet < 0.5, `silence scores ${quiet}`);

  await refused(call(client, 'ModelInfer', {model_name: 'no_such_model'}), grpc.status.NOT_FOUND, 'no_such_model');
  await refused(call(client, 'ModelInfer', {
    model_name: 'silero_vad', inputs: [{name: 'input', datatype: 'INT8', shape: [1, 4]}], raw_input_contents: [Buffer.alloc(4)],
  }), grpc.status.INVALID_ARGUMENT, 'input');
  client.close();
  if (highest < 0.8) throw new Error(`the voice scores only ${highest}`);
}

main().catch((error) => {
  console.error(`listen.js: ${error.message}`);
  process.exit(1);
});
