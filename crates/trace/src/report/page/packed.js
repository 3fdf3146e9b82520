// Columns and time lines as they come out of Rust.

/**
 * Undoes page.rs's `packed`.
 * @template T
 * @param {string} text
 * @param {new (from: ArrayBuffer) => T} Kind
 * @returns {Promise<T>}
 */
async function unpack(text, Kind) {
  if (!text) return new Kind(new ArrayBuffer(0));
  const raw = atob(text);
  const packed = new Uint8Array(raw.length);
  for (let i = 0; i < raw.length; i++) packed[i] = raw.charCodeAt(i);
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Kind(await new Response(stream).arrayBuffer());
}

/** How much there was up to each bucket's end: what was between two moments is a difference. */
class Amounts {
  /**
   * @param {number} start
   * @param {number} bucket
   * @param {ArrayLike<number>} values
   */
  constructor(start, bucket, values) {
    this.start = start;
    this.bucket = bucket;
    this.upTo = new Float64Array(values.length + 1);
    for (let i = 0; i < values.length; i++) this.upTo[i + 1] = this.upTo[i] + values[i];
  }
  /** @param {number} t */
  before(t) {
    const last = this.upTo.length - 1;
    const at = Math.min(last, Math.max(0, (t - this.start) / this.bucket));
    const low = Math.floor(at);
    return low >= last ? this.upTo[last] : this.upTo[low] + (this.upTo[low + 1] - this.upTo[low]) * (at - low);
  }
  /**
   * @param {number} from
   * @param {number} to
   */
  within(from, to) {
    return this.before(to) - this.before(from);
  }
}
/** @param {SeriesData | null} packed */
async function amounts(packed) {
  return packed ? new Amounts(packed.start, packed.bucket, await unpack(packed.values, Float32Array)) : new Amounts(0, 1, []);
}
/** The sum of several, as exact as the coarsest. @param {Amounts[]} all */
function together(all) {
  const some = all.filter((each) => each.upTo.length > 1);
  if (!some.length) return new Amounts(0, 1, []);
  const bucket = Math.max(...some.map((each) => each.bucket));
  // buckets are powers of two of one clock, so that the edges of the coarsest are edges of all
  const edge = some.find((each) => each.bucket === bucket)?.start ?? 0;
  const start = edge - Math.ceil((edge - Math.min(...some.map((each) => each.start))) / bucket) * bucket;
  const end = Math.max(...some.map((each) => each.start + each.bucket * (each.upTo.length - 1)));
  const values = new Float64Array(Math.max(1, Math.ceil((end - start) / bucket)));
  for (const each of some) {
    for (let i = 0; i + 1 < each.upTo.length; i++) {
      values[Math.floor((each.start + i * each.bucket - start) / bucket)] += each.upTo[i + 1] - each.upTo[i];
    }
  }
  return new Amounts(start, bucket, values);
}

/**
 * @typedef {object} Kept calls that are kept one by one, by their start
 * @property {Float64Array} start
 * @property {Float64Array} took
 * @property {Uint32Array} thread
 * @property {Uint8Array} call
 * @property {Uint8Array} class
 * @property {Uint32Array} other
 * @property {Float64Array} bytes
 * @property {Uint32Array} calls_in
 * @property {Uint32Array} error
 */
/**
 * @typedef {object} Lane
 * @property {number} process
 * @property {boolean} mpi
 * @property {(Uint32Array | null)[]} sums by class: the shares of all buckets before one, in 255ths
 * @property {Kept} kept
 * @property {number} longest
 * @property {boolean} complete
 * @property {number} calls
 * @property {number} shortest
 */
/** @type {Lane[]} */
const lanes = [];
/** By process and kind, as flights name them: twice the process's number, one more of its MPI calls. @type {Map<number, Lane>} */
const laneBy = new Map();
/** By process: bytes sent, bytes received, socket calls. @type {Amounts[][]} */
const moved = [];

async function loadLanes() {
  for (const [index, process] of data.processes.entries()) {
    moved.push(await Promise.all(process.moved.map(amounts)));
    for (const lane of process.lanes) {
      const sums = [];
      for (const packed of lane.shares) {
        const shares = await unpack(packed, Uint8Array);
        if (!shares.length) { sums.push(null); continue; }
        const upTo = new Uint32Array(shares.length + 1);
        for (let i = 0; i < shares.length; i++) upTo[i + 1] = upTo[i] + shares[i];
        sums.push(upTo);
      }
      const calls = {
        start: await unpack(lane.start, Float64Array), took: await unpack(lane.took, Float64Array), thread: await unpack(lane.thread, Uint32Array),
        call: await unpack(lane.call, Uint8Array), class: await unpack(lane.class, Uint8Array), other: await unpack(lane.other, Uint32Array),
        bytes: await unpack(lane.bytes, Float64Array), calls_in: await unpack(lane.calls_in, Uint32Array), error: await unpack(lane.error, Uint32Array),
      };
      let longest = 0;
      for (const took of calls.took) longest = Math.max(longest, took);
      const made = { process: index, mpi: lane.mpi, sums, kept: calls, longest, complete: lane.kept === lane.calls, calls: lane.calls, shortest: lane.shortest };
      lanes.push(made);
      laneBy.set(index * 2 + Number(lane.mpi), made);
    }
  }
}

/**
 * Index of the first of what is sorted by its start that may reach a moment.
 * @param {Float64Array} start
 * @param {number} longest
 * @param {number} t
 */
function firstAt(start, longest, t) {
  let [low, high] = [0, start.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (start[middle] < t - longest) low = middle + 1; else high = middle;
  }
  return low;
}

/**
 * Shares of the classes between two moments.
 * @param {Lane} lane
 * @param {number} from
 * @param {number} to
 */
function sharesAt(lane, from, to) {
  const { bucket, buckets } = data.timeline;
  const a = Math.max(0, Math.min(buckets - 1, Math.floor(from / bucket)));
  const b = Math.max(a + 1, Math.min(buckets, Math.ceil(to / bucket)));
  return lane.sums.map((upTo) => (upTo ? (upTo[b] - upTo[a]) / (255 * (b - a)) : 0));
}
