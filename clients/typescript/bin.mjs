#!/usr/bin/env node
// Runs the dbctl of the package for this platform.
import { spawnSync } from 'node:child_process';
import { findBinary } from './dist/server.js';

try {
  const { status, signal, error } = spawnSync(findBinary(), process.argv.slice(2), { stdio: 'inherit' });
  if (error) throw error;
  if (signal) process.kill(process.pid, signal);
  process.exitCode = status ?? 1;
} catch (failure) {
  console.error(`dbctl: ${failure.message}${failure.hint ? `; ${failure.hint}` : ''}`);
  process.exitCode = 1;
}
