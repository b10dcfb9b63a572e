import { randomBytes } from 'node:crypto';

const alphabet = '0123456789ABCDEFGHJKMNPQRSTVWXYZ';

/** Returns a new ULID: 48 bits of time and 80 random bits. The server stores it with the commit, so a repeated call is applied once. */
export function ulid(now: number = Date.now()): string {
  let time = '';
  for (let rest = now, i = 0; i < 10; i++, rest = Math.floor(rest / 32)) time = alphabet.charAt(rest % 32) + time;
  let random = '';
  for (const byte of randomBytes(16)) random += alphabet.charAt(byte & 31);
  return time + random;
}
