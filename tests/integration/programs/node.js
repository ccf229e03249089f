// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The cella authors
// Worker threads, fs.watch, child processes, streams, timers.
const fs = require('fs'), path = require('path'), { Worker, isMainThread, parentPort, workerData } = require('worker_threads');
const { execSync, spawn, execFileSync } = require('child_process'), crypto = require('crypto'), zlib = require('zlib');
if (!isMainThread) {
  let s = 0;
  for (let i = 0; i < workerData * 1000; i++) s = (s + i * i) % 1000003;
  parentPort.postMessage(s);
} else {
  (async () => {
    console.log(await Promise.all([1, 2, 3].map(n => new Promise(r => new Worker(__filename, { workerData: n }).on('message', r)))));
    fs.mkdirSync('w');
    const seen = new Promise(r => { const w = fs.watch('w', (e, f) => { w.close(); r([e, f]); }); });
    fs.writeFileSync('w/file', 'content');
    console.log(await seen);
    console.log(execSync('echo from a shell; exit 0').toString().trim());
    try { execSync('exit 5', { stdio: 'ignore' }); } catch (e) { console.log('status', e.status); }
    const cat = spawn('cat'); let out = '';
    cat.stdout.on('data', d => out += d); cat.stdin.end('to cat');
    await new Promise(r => cat.on('close', r)); console.log(out);
    fs.writeFileSync('big', crypto.createHash('sha512').update('x').digest('hex').repeat(5000));
    await new Promise(r => fs.createReadStream('big').pipe(zlib.createGzip()).pipe(fs.createWriteStream('big.gz')).on('finish', r));
    console.log(zlib.gunzipSync(fs.readFileSync('big.gz')).length, fs.statSync('big').size);
    console.log(fs.readdirSync('.').sort().filter(n => n !== path.basename(__filename)).join());
    const t = process.hrtime.bigint(); await new Promise(r => setTimeout(r, 20)); console.log(process.hrtime.bigint() - t >= 19000000n);
    const k = spawn('sleep', ['60']); k.kill('SIGTERM'); console.log(await new Promise(r => k.on('exit', (c, s) => r([c, s]))));
    const net = require('net'), server = net.createServer(c => c.end('unix')).listen('s.sock');
    await new Promise(r => server.on('listening', r));
    console.log(await new Promise(r => { let d = ''; net.connect('s.sock').on('data', x => d += x).on('end', () => r(d)); })); server.close();
  })();
}
