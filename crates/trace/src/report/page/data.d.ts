// What Rust puts into the page (report/data), for the checker of the page's code. A test in page.rs compares the names here with what is
// really written. Columns are packed: see `unpack`.

type Packed = string;

interface Data {
  command: string;
  kind: "mpi" | "transfer" | "server" | "client" | "other";
  keys: KeyData[];
  sentence: string;
  finding: string;
  warnings: string[];
  notes: string[];
  date_ms: number;
  status: number | null;
  span: number;
  hosts: HostData[];
  classes: ClassesData;
  mpi_classes: ClassesData | null;
  own_classes: ClassesData | null;
  slots: [number, number];
  senders: number;
  suggestions: SuggestionData[];
  totals: TotalsData;
  matrix: MatrixData;
  histograms: HistogramsData[];
  calls: CallData[];
  call_names: string[];
  processes: ProcessData[];
  threads: [number, number, string][];
  sockets: string[];
  timeline: TimelineData;
  flights: FlightsData;
  connections: ConnectionData[];
  connections_left_out: [number, number];
  refused: RefusedData[];
  unheard: UnheardData[];
  paths: PathsData;
  rails: RailEventData[];
  against: ComparedData[] | null;
}

interface KeyData {
  value: string;
  label: string;
  bad: boolean;
}

interface HostData {
  name: string;
  kernel: string;
  processors: number;
  clock_error: number | null;
  kernel_events: boolean;
}

interface ClassesData {
  frequency: string | null;
  size: string | null;
  synchrony: string | null;
  messages: number;
  gap_by_time: number | null;
  size_by_cost: number | null;
  gap: [number, number] | null;
  bytes: [number, number] | null;
  time_by_gap: number[];
  cost_by_size: number[];
  together: [number, number] | null;
}

interface SuggestionData {
  title: string;
  problem: string;
  reason: string;
  how: string;
  figures: [string, string][];
  lost: number | null;
}

interface TotalsData {
  calls: number;
  records: number;
  mpi: number;
  samples: number;
  kernel: number;
  bytes: number;
  messages: number;
  mpi_messages: number;
  connections: number;
  retransmissions: number;
  spurious: number;
  timeouts: number;
  lost: number;
}

interface MatrixData {
  names: string[];
  merged: number;
  cells: number[][];
}

/** Count, median, 90th percentile, maximum. */
type Figures = [number, number | null, number | null, number];

interface HistogramsData {
  name: string;
  sizes: number[];
  gaps: number[];
  size: Figures;
  gap: Figures;
}

interface CallData {
  name: string;
  mpi: boolean;
  calls: number;
  inside: number;
  longest: number;
  bytes: number;
  errors: number;
}

/** Amounts over time, from `start` in steps of `bucket`. */
interface SeriesData {
  start: number;
  bucket: number;
  values: Packed;
}

interface ProcessData {
  name: string;
  host: number;
  pid: number;
  command: string;
  rank: number | null;
  status: number | null;
  span: [number, number];
  sockets: number[];
  mpi: number[];
  calls: number;
  bytes: [number, number];
  messages: number;
  waited: number;
  idle: number;
  moved: SeriesData[];
  lanes: LaneData[];
}

interface LaneData {
  mpi: boolean;
  calls: number;
  kept: number;
  shortest: number;
  shares: Packed[];
  start: Packed;
  took: Packed;
  thread: Packed;
  call: Packed;
  class: Packed;
  other: Packed;
  bytes: Packed;
  calls_in: Packed;
  error: Packed;
}

interface TimelineData {
  bucket: number;
  buckets: number;
  classes: [string[], string[]];
}

interface FlightsData {
  seen: number;
  kept: number;
  start: Packed;
  took: Packed;
  from: Packed;
  to: Packed;
}

interface ConnectionData {
  kind: string;
  hosts: [string, string];
  names: [string, string];
  addresses: [string, string];
  span: [number, number];
  classes: ClassesData;
  min_rtt: number | null;
  there: DirectionData;
  back: DirectionData;
}

interface DirectionData {
  bytes: number;
  sends: number;
  messages: number;
  rate: number | null;
  limits: number[] | null;
  retransmissions: number;
  spurious: number;
  timeouts: number;
  loss: number | null;
  congestion: string;
  mean_rtt: number | null;
  mss: number;
  collapses: number;
  restarts: [number, number, number, number, number][];
  full: number | null;
  moved: SeriesData | null;
  series: WindowsData | null;
}

interface WindowsData {
  points: number;
  joined: number;
  seen: [number, number];
  at: Packed;
  cwnd_low: Packed;
  cwnd_high: Packed;
  ssthresh: Packed;
  flight: Packed;
  rtt: Packed;
  free: Packed;
  rate: Packed;
  again: Packed;
  timeouts: Packed;
}

interface RefusedData {
  process: string;
  to: string;
  why: string;
  times: number;
}

interface UnheardData {
  process: string;
  at: string;
  sent: number;
  received: number;
}

/** Call, sender, receiver, bytes, tag, start, then ns since it: call's end, first send, last send's end, acknowledgement and its bound; what carried it. */
type PathData = [string, number, number, number, number, number, number, number, number, [number, number] | null, [string, number][]];

/** What happened to a peer or a lane of Polyrail's. */
interface RailEventData {
  at: number;
  process: string;
  peer: string;
  event: string;
  what: string;
  near: string;
  far: string;
  why: string;
}

interface PathsData {
  found: number;
  unfound: number;
  acknowledged: number;
  to_send: Figures;
  sending: Figures;
  to_acknowledged: Figures;
  longest: PathData[];
}

interface ComparedData {
  name: string;
  ours: string;
  theirs: string;
  ratio: number | null;
}
