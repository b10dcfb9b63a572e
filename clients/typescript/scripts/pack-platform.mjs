// Packs the npm package of one platform around a dbctl that was built for it:
//
//   CGO_ENABLED=0 GOOS=linux GOARCH=arm64 go build -trimpath -ldflags '-s -w' -o dbctl ./cmd/dbctl
//   node scripts/pack-platform.mjs linux-arm64 dbctl OUT
import { execFileSync } from 'node:child_process';
import { chmodSync, copyFileSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';

const main = JSON.parse(readFileSync(new URL('../package.json', import.meta.url), 'utf8'));
const [platform, binary, out] = process.argv.slice(2);
const name = `@ctxpage/${platform}`;
if (!out || main.optionalDependencies[name] !== main.version) {
  console.error(`usage: pack-platform.mjs PLATFORM BINARY OUT, where PLATFORM is one of ${Object.keys(main.optionalDependencies).map((n) => n.slice(9)).join(' ')}`);
  process.exit(1);
}
const [os, cpu] = platform.split('-');
const dir = mkdtempSync(join(tmpdir(), 'ctxpage-pack-'));
try {
  mkdirSync(join(dir, 'bin'));
  const target = join(dir, 'bin', os === 'win32' ? 'dbctl.exe' : 'dbctl');
  copyFileSync(binary, target);
  chmodSync(target, 0o755);
  const { version, license, repository } = main;
  const about = { name, version, description: `dbctl of ctxpage for ${platform}`, license, repository, os: [os], cpu: [cpu], files: ['bin'], preferUnplugged: true };
  writeFileSync(join(dir, 'package.json'), JSON.stringify(about, null, 2));
  execFileSync('npm', ['pack', '--silent', '--pack-destination', resolve(out)], { cwd: dir, stdio: ['ignore', 'inherit', 'inherit'] });
} finally {
  rmSync(dir, { recursive: true, force: true });
}
