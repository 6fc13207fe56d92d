/* client/ctl_main.c - sluicectl: the commands, their help, and main. */
#include "client/ctl.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

#define COMMON                                                                               \
    "\n  --json            answer as JSON"                                                   \
    "\n  --instance NAME   the node meant (default: $SLUICE_INSTANCE or \"default\")"        \
    "\n  --config FILE, --runtime-dir DIR, --shm-dir DIR and all other settings: sluicectl " \
    "config --help"                                                                          \
    "\nExit codes: 0 fine, 1 no (not found, failed), 2 wrong use, 3 node not reachable."

static const struct ctl_command commands[] = {
    {"put", "store one object",
     "put KEY [FILE|-]\n\nStores FILE (or standard input) under KEY. A key that exists is success "
     "and changes nothing.\n" COMMON,
     ctl_put},
    {"get", "fetch one object",
     "get KEY [FILE|-]\n\nWrites the value to FILE (or standard output). Values in memory are read "
     "without asking any "
     "actor.\n" COMMON,
     ctl_get},
    {"exists", "ask whether objects are there",
     "exists KEY... [--everywhere]\n\nPrints one line a key; code 0 when all exist. Works on "
     "shared "
     "memory alone.\n\n  --everywhere      ask other nodes for what is not here" COMMON,
     ctl_exists},
    {"prefetch", "bring objects into memory before they are read",
     "prefetch KEY... [--timeout T]\n\nPrints one line a key: loaded (it came from disk), memory "
     "(it "
     "was there), no room, miss,\nor what failed. Reads of others go first, and nothing leaves "
     "memory "
     "for it that is pinned,\nnot on disk, or was prefetched and not read yet; that may be a "
     "quarter "
     "of memory. Code 0 when\nall are in memory.\n\n  --timeout T       give up after T (default "
     "10s)" COMMON,
     ctl_prefetch},
    {"rm", "remove objects",
     "rm KEY... [--everywhere] | --all\n\nRemoves objects for good; a block key (MODEL/BLOCK) "
     "removes all its parts.\n\n  --everywhere      at other nodes too, where they let their peers "
     "(setting peer_removes)\n  --all             every object of the node" COMMON,
     ctl_rm},
    {"ls", "list objects",
     "ls [PREFIX] [--limit N]\n\nLists visible objects: bytes, where (m: memory, d: disk), key. "
     "Works on shared memory "
     "alone, also while actors\nare stopped.\n" COMMON,
     ctl_ls},
    {"stat", "describe one object, or the node's memory",
     "stat [KEY]\n\nWithout a key: totals of arena, index and keys. Works on shared memory "
     "alone.\n" COMMON,
     ctl_stat},
    {"explain", "say why something is a miss",
     "explain KEY...\n\nSays of each object, part (MODEL/BLOCK/RANK/POOL) or block (MODEL/BLOCK) "
     "where it is, or why it is not here and\nsince when. The registrar remembers the last "
     "`ghosts_max` that left. Code 0 when all are there." COMMON,
     ctl_explain},
    {"flush", "wait until all that was committed is on disk",
     "flush [--timeout T]\n\n  --timeout T       give up after T (default 60s)" COMMON, ctl_flush},
    {"status", "actors, health, counters",
     "status [--metrics] [--not-ready NAME...] [--silent-ms N]\n\nReads the actors' metrics pages "
     "and disturbs nobody. A "
     "loop that has not turned for 2 s is called stuck.\n\n  --metrics         all counters and "
     "histograms\n  --not-ready "
     "NAME...   print those of the names that are not alive and ready, one a line\n  --silent-ms N "
     "    print the "
     "living actors whose loop has not turned for N ms, one a line" COMMON,
     ctl_status},
    {"tiers", "what each tier holds, gives and takes",
     "tiers\n\nMemory, each disk and remote: bytes, objects, share of the loaded blocks, queue, "
     "latency, errors, health.\nReads the actors' metrics pages and disturbs nobody." COMMON,
     ctl_tiers},
    {"pools", "device memory of deployments, and who has it",
     "pools\n\nThe table of pools: the memory of each pool of each rank, its state (absent: "
     "somebody waits for it; allocating; ready;\nrevoking), epoch, bytes, who made it, who waits, "
     "and who maps it." COMMON,
     ctl_pools},
    {"contributions", "what processes contribute to the node's memory",
     "contributions\n\nEach: its number, what it adds, what of it values are charged, and whose it "
     "is: it ends\nwith that process. Others than nodes with the setting contributions have "
     "none." COMMON,
     ctl_contributions},
    {"nodes", "the nodes this one knows",
     "nodes\n\nEach peer: state (alive; away: it does not answer; broken: it fails and is left "
     "alone for a while; asks: it reads\nfrom us, we do not ask it), the link that carries bytes, "
     "round trip of the last greeting, bytes and values read from\nit, failures, incarnation (when "
     "its transporter started)." COMMON,
     ctl_nodes},
    {"keygen", "make a node's keys",
     "keygen DIRECTORY NODE\n\nMakes DIRECTORY/NODE.secret (0600) and DIRECTORY/NODE.pub. A node "
     "with `cluster_keys = DIRECTORY` and\n`node_name = NODE` proves by the secret who it is; who "
     "may connect to it is whose NAME.pub lies in its directory.\nCopy each node's .pub to its "
     "peers, and no .secret anywhere.\n\n  --json            answer as JSON",
     ctl_keygen},
    {"trace", "show an op's path through the actors",
     "trace ID | --last N | --slow N\n\nMerges the flight recorders of all actors (dead and "
     "stopped ones too) with their "
     "logs.\n\n  ID                16 hex digits: all events in time order, offsets in us\n  "
     "--last N          the N "
     "most recent ops\n  --slow N          the N slowest ops still remembered" COMMON,
     ctl_trace},
    {"keys", "derive block keys as engines do",
     "keys --format F --block-tokens N [--partial] [--pickle-protocol 4|5]\n\nReads JSON lines "
     "from standard input, "
     "{\"tokens\": [...], \"extras\": [[...] per block], \"seed\": \"...\", \"parent\": "
     "\"hex\"},\nand prints one key a "
     "line. All members but tokens may be missing. A repeated object among extras is {\"same_as\": "
     "i}.\n\n  --format F        "
     "fastdeploy, fastdeploy-v1, vllm-sha256, vllm-sha256-cbor, vllm-xxhash, vllm-xxhash-cbor, "
     "sglang,\n                    "
     "sglang-bigram, lmcache-sha256, lmcache-sha256-cbor, sluice\n  --block-tokens N  tokens of a "
     "block\n  --partial         "
     "an incomplete last block gets a key where the format has one\n\nexample: echo '{\"tokens\": "
     "[1,2,3,4]}' | sluicectl "
     "keys --format vllm-sha256-cbor --block-tokens 2",
     ctl_keys},
    {"messages", "print the message catalogue",
     "messages\n\nPrints the table of messages between actors as Markdown.", ctl_messages},
    {"config", "print the settings in force",
     "config [--shell | --plain | --check] [SETTINGS]\n\nPrints every setting with its value and "
     "where it comes from; --help lists kinds, ranges and defaults.\n\n"
     "  --shell           as shell assignments S_name='value'\n"
     "  --plain           as lines name=value\n"
     "  --check           opens each disk as its tierer will, and closes it again; names one that "
     "a node goes without.\n"
     "                    Makes directories that are missing. Code 1 and the reason: the node "
     "cannot start",
     ctl_config},
    {"workload", "generate a trace",
     "workload [--requests N] [--seed N] [--block-tokens N] [--sessions N] [--system-prompts N] "
     "[--rate R]\n\nPrints a "
     "trace as JSON lines {timestamp, input_length, output_length, hash_ids}, timestamps in ms. It "
     "has the shape of\n"
     "production chat traffic: conversations of several turns that share their prefix, system "
     "prompts shared by many,\n"
     "Poisson arrivals, log-normal lengths, a few exact retries. The same parameters always give "
     "the same trace.\n\n"
     "  --requests N        requests (default 1500)\n  --seed N            (default 1)\n  "
     "--block-tokens N    tokens a "
     "hash id stands for (default 512)\n  --sessions N        conversations alive at a time "
     "(default 64)\n"
     "  --system-prompts N  distinct ones (default 8)\n  --rate R            requests a second, on "
     "average (default 4)",
     ctl_workload},
    {"bench", "measure, beside the physical limit",
     "bench all [--seconds S]\n"
     "       sluicectl bench get|put|exists [--size N] [--batch N] [--keys N] [--pieces N]\n"
     "                                      [--seconds S]\n"
     "       sluicectl bench queue [--size N] [--seconds S]\n"
     "       sluicectl bench disk [--size N] [--total SIZE]\n"
     "       sluicectl bench gpu [--rank GPU] [--total SIZE]\n\nMeasures the client "
     "library, and in the same run, in turns of 5 ms, its limits: memcpy of the\nsame sizes "
     "between faulted mappings and the fastest copy routine, or a bare hash-table probe\n(exists). "
     "Both sides walk over more than four times the last-level cache where the node's\nmemory "
     "allows it (walk_bytes, llc_bytes). Rates are medians of the turns, ratios medians of\nthe "
     "ratios of neighbouring turns; p50 and p99 are of one call, a batch.\n\n"
     "  all     exists with a million keys, get and put of 4KiB to 4MiB, queue: a table. WHAT THE\n"
     "          NODE HOLDS IS EVICTED\n"
     "  get     into the caller's buffers; all keys are in memory\n"
     "  put     with the digest, of new keys only. Without --keys into a full memory, as a cache "
     "is:\n          each put evicts the oldest object. WHAT THE NODE HOLDS IS EVICTED. With "
     "--keys N\n          into free memory; after N puts the keys are removed, which is not "
     "timed\n"
     "  exists  in the shared index\n"
     "  queue   round trips of one frame between two processes through shared memory, beside\n"
     "          ZeroMQ; needs no node\n"
     "  disk    objects stored through a tierer and loaded again, beside fio on the same "
     "disk\n"
     "  gpu     scattered pieces of 4, 16 and 64 KiB between a GPU (--rank N: the Nth) and pinned\n"
     "          memory, 1,000 to 100,000 of them, by every way, beside one copy of the same bytes\n"
     "          and a copy a piece; with digests too; and where which way is fastest, which is\n"
     "          kept for the swapper. --total: bytes of memory of each side (default 7GiB). Needs\n"
     "          no node\n\nRemoves its keys.\n\n"
     "  --size N          bytes of a value (default 256KiB; exists, queue: 64)\n"
     "  --batch N         keys a call (default 1; exists: 256)\n"
     "  --keys N          distinct keys (default: get 4x the last-level cache, exists 100000,\n"
     "                    bounded by memory; a million keys want --index-memory 400MiB of the "
     "node)\n"
     "  --pieces N        get, put: each value from or into so many pieces (default: one buffer)\n"
     "  --seconds S       of measuring (default 2)" COMMON,
     ctl_bench},
    {"doctor", "check the machine for the node that the settings describe",
     "doctor\n\nOne line a check: memory, huge pages, limits, io_uring, disk, NICs, ports, key "
     "files, keys of nodes, "
     "the directory, leftovers;\nok, warn or fail, and how to mend it. Needs no node. Code 0 when "
     "nothing failed. Changes nothing." COMMON,
     ctl_doctor},
    {"replay", "play a trace as an engine would",
     "replay TRACE [OPTIONS]\n\nFor every request: loads the longest known prefix into device "
     "blocks, checks every byte, "
     "computes what is missing,\nstores it. Code 0: everything was replayed, no wrong byte, "
     "nothing lost, no error.\n\n"
     "  --ranks N           ranks of the engine (default 1)\n  --pools N           pools of a rank "
     "(default 1)\n"
     "  --layers N          layers of a pool (default 4); a part is cut into as many pieces, the "
     "remainder in the last\n"
     "  --block-bytes SIZE  one part: one rank, one pool (default 4096)\n  --key-format F      "
     "(default sluice)\n"
     "  --limit N           only the first N requests\n  --speed X           keep the trace's "
     "times, X times as fast "
     "(default: as fast as possible)\n  --device-blocks N   blocks of each device (default: twice "
     "the longest request)\n"
     "  --op-timeout T      deadline of an op (default 2s)\n  --json OUT          the report as "
     "JSON, to a file, - is "
     "standard output\n  --progress auto|on|off\n"
     "  --first N           begin with request N of them, counted from 0\n"
     "  --also FILES        config files of more nodes, separated by commas: requests go to the "
     "nodes in turn\n"
     "  --published T       after each request wait until the directory knows what its node holds, "
     "T at most\n"
     "  --window N          report hits for every N requests too\n"
     "  --instance NAME     the node meant, and all "
     "other settings: sluicectl config --help\n"
     "Exit codes: 0 fine, 1 mismatches, errors or losses, 2 wrong use, 3 node not reachable.",
     ctl_replay},
    {"pd-demo", "hand requests from a prefill to a decode engine",
     "pd-demo [OPTIONS]\n\nRuns a prefill and a decode engine as two processes on host memory. Of "
     "every request decode announces it, prefill\ncomputes its input, most of them with an "
     "incomplete last block, and hands it over; decode loads it, checks every byte,\nand stores "
     "what it added. Code 0: all complete, no wrong byte, no block still held; with "
     "--kill-prefill also: all others\nended with an error of class 502 by their deadlines.\n\n"
     "  --mode storage|direct   (default: as FD_PD_TRANSFER_VIA_STORAGE says, storage when it is "
     "not "
     "set)\n"
     "  --requests N            (default 20)\n  --concurrency N         at a time (default 8)\n"
     "  --blocks N              longest input, in blocks of 64 tokens (default 8)\n"
     "  --ranks N               ranks of both engines (default 1)\n"
     "  --layers N              layers of a block (default 4)\n"
     "  --block-bytes SIZE      one block of one rank (default 4096)\n"
     "  --key-format F          one with keys for incomplete blocks (default sluice)\n"
     "  --op-timeout T          deadline of a hand-over (default 2s)\n"
     "  --seed N                (default 1)\n"
     "  --kill-prefill          kill -9 prefill when half of the requests have ended\n"
     "  --by-layers             layer by layer: prefill stores or pushes a layer while it "
     "computes\n"
     "                          the next ones, decode checks each as it comes\n"
     "  --prefill-instance NAME, --decode-instance NAME\n"
     "                          two nodes that are each other's peers (default: one)\n"
     "  --prefill-config FILE, --decode-config FILE\n"
     "                          their settings, where these differ in more than the name\n"
     "  --progress auto|on|off" COMMON,
     ctl_pd_demo},
};

static void usage(FILE *out)
{
    (void)fprintf(out, "usage: sluicectl COMMAND [ARGUMENTS]\n\n");
    for (size_t i = 0; i < SL_COUNT(commands); i++) {
        (void)fprintf(out, "  %-10s %s\n", commands[i].name, commands[i].summary);
    }
    (void)fprintf(out, "\nsluicectl COMMAND --help says more. Exit codes: 0 fine, 1 no, 2 wrong "
                       "use, 3 node not reachable.\n");
}

int main(int argc, char **argv)
{
    (void)signal(SIGPIPE, SIG_DFL); /* `sluicectl ls | head` ends quietly */
    if (argc < 2) {
        usage(stderr);
        return CTL_WRONG_USE;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 ||
        strcmp(argv[1], "help") == 0) {
        usage(stdout);
        return CTL_FINE;
    }
    if (strcmp(argv[1], "--version") == 0) {
        (void)printf("sluicectl %s\n", SL_VERSION);
        return CTL_FINE;
    }
    struct ctl ctl = {0};
    for (size_t i = 0; i < SL_COUNT(commands); i++) {
        if (strcmp(argv[1], commands[i].name) == 0) {
            ctl.command = &commands[i];
        }
    }
    if (ctl.command == NULL) {
        (void)fprintf(stderr, "sluicectl: unknown command '%s'\n", argv[1]);
        usage(stderr);
        return CTL_WRONG_USE;
    }
    int code = ctl.command->run(&ctl, argc - 1, argv + 1);
    for (uint32_t i = 0; i < ctl.setting_count; i++) {
        free(ctl.setting_texts[i]);
    }
    sl_config_destroy(&ctl.config);
    if (fflush(stdout) != 0 || ferror(stdout) != 0) {
        (void)fprintf(stderr, "sluicectl: cannot write to standard output\n");
        return code == CTL_FINE ? CTL_NO : code;
    }
    return code;
}
