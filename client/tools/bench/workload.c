/* client/tools/bench/workload.c - sluicectl workload: parses options and becomes workload.py. */
#include "client/tools/bench/commands.h"

#include <inttypes.h>
#include <stdlib.h>

static int workload_command(struct ctl *ctl, int argc, char **argv)
{
    int code;
    const char *rate = "4";
    uint64_t requests = 1500, seed = 1, sessions = 64;
    char numbers[3][21];
    const struct ctl_option options[] = {{.name = "requests", .count = &requests},
                                         {.name = "seed", .count = &seed},
                                         {.name = "sessions", .count = &sessions},
                                         {.name = "rate", .text = &rate}};
    if (!ctl_parse(ctl, argc, argv, options, SL_COUNT(options), &code)) {
        return code;
    }
    (void)snprintf(numbers[0], sizeof numbers[0], "%" PRIu64, requests);
    (void)snprintf(numbers[1], sizeof numbers[1], "%" PRIu64, seed);
    (void)snprintf(numbers[2], sizeof numbers[2], "%" PRIu64, sessions);
    const char *const words[] = {numbers[0], numbers[1], numbers[2], rate, NULL};
    ctl_script_exec("workload.py", words);
}

/* clang-format off */
const struct ctl_command ctl_workload = {
    .name = "workload",
    .summary = "generate a trace",
    .help = "workload [--requests N] [--seed N] [--sessions N] [--rate R]\n"
            "\n"
            "Prints a trace as JSON lines {timestamp, input_length, output_length, hash_ids}, with timestamps in ms. It resembles\n"
            "production chat traffic: conversations of several turns that share their prefix, shared system prompts, Poisson arrivals,\n"
            "log-normal lengths, a few exact retries. A hash id represents 512 tokens. The same options always give the same trace.\n"
            "\n"
            "example: sluicectl workload | sluicectl replay -\n"
            "\n"
            "  --requests N        number of requests (default 1500)\n"
            "  --seed N            seed of random numbers (default 1)\n"
            "  --sessions N        number of concurrent conversations (default 64)\n"
            "  --rate R            requests a second, on average (default 4)",
    .run = workload_command,
};
/* clang-format on */
