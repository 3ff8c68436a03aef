// How the SDK suites tell what they saw: one JSON line per check, and one at the end.
import { createRequire } from 'node:module';
import { join } from 'node:path';

/** Against a scripted engine (tests/clients/script.json) everything is tried; against a genuine one only what any model gives. */
export const SCRIPTED = (process.env.ENGINE ?? 'scripted') === 'scripted';

/** A package from the folder that install.sh made; its name comes in CLIENTS. */
export const fromCache = createRequire(join(process.env.CLIENTS, 'package.json'));

let allHold = true;

/** One sentence and whether it holds. */
export function check(says, holds) {
  allHold &&= Boolean(holds);
  console.log(JSON.stringify({ says, holds: Boolean(holds) }));
}

/** The error of that class that a call ends with; undefined, and a line on stderr, when it ends otherwise. */
export async function rejects(kind, call) {
  try {
    await call();
  } catch (error) {
    if (error instanceof kind) return error;
    console.error(`expected ${kind.name}, got ${error?.constructor?.name}: ${error?.message}`);
    return undefined;
  }
  console.error(`expected ${kind.name}, and nothing was thrown`);
  return undefined;
}

/** Everything of an async iterable. */
export async function all(items) {
  const seen = [];
  for await (const item of items) seen.push(item);
  return seen;
}

/** Does one part after the other; what a part throws is a check that does not hold, and the next one goes on. */
export async function parts(named) {
  for (const [name, part] of Object.entries(named)) {
    try {
      await part();
    } catch (error) {
      check(`${name}: ${error?.constructor?.name}: ${error?.message}`, false);
    }
  }
  console.log(JSON.stringify({ end: true }));
  process.exit(allHold ? 0 : 1);
}
