/* client/bench/workload.c - prints a generated trace. */
#include "client/bench/commands.h"
#include "client/bench/replay_trace.h"
#include "client/bench/workload_model.h"
#include "runtime/sl_parse.h"

#include <inttypes.h>
#include <stdlib.h>

#define SYSTEM_PROMPTS 8u

static int workload_command(struct ctl *ctl, int argc, char **argv)
{
    int code;
    struct sl_error why = {0};
    uint64_t requests = 1500;
    uint64_t seed = 1;
    uint64_t sessions = 64;
    const char *rate = "4";
    const struct ctl_option options[] = {{.name = "requests", .count = &requests},
                                         {.name = "seed", .count = &seed},
                                         {.name = "sessions", .count = &sessions},
                                         {.name = "rate", .text = &rate}};
    if (!ctl_parse(ctl, argc, argv, options, SL_COUNT(options), &code)) {
        return code;
    }
    double rate_per_s = 0;
    if (!sl_parse_real(rate, &rate_per_s)) {
        return ctl_wrong(ctl, "--rate '%s' is not a number", rate);
    }
    const struct workload_options asked = {.requests = requests,
                                           .seed = seed,
                                           .block_tokens = REPLAY_BLOCK_TOKENS,
                                           .sessions = (uint32_t)SL_MIN(sessions, UINT32_MAX),
                                           .system_prompts = SYSTEM_PROMPTS,
                                           .rate_per_s = rate_per_s};
    struct workload *workload = NULL;
    if (workload_create(&asked, &workload, &why) != SL_OK) {
        return ctl_wrong(ctl, "%s", why.text);
    }
    struct workload_request request;
    while (workload_next(workload, &request)) {
        (void)printf("{\"timestamp\": %" PRIu64
                     ", \"input_length\": %u, \"output_length\": %u, \"hash_ids\": [",
                     request.timestamp_ms, request.input_length, request.output_length);
        for (uint32_t i = 0; i < request.hash_count; i++) {
            (void)printf("%s%u", i == 0 ? "" : ", ", request.hash_ids[i]);
        }
        (void)puts("]}");
    }
    code = workload_failed(workload) ? CTL_NO : CTL_FINE;
    if (code != CTL_FINE) {
        (void)fprintf(stderr, "sluicectl workload: out of memory\n");
    }
    workload_destroy(&workload);
    return code;
}

/* clang-format off */
const struct ctl_command ctl_workload = {
    .name = "workload",
    .summary = "generate a trace",
    .help = "workload [--requests N] [--seed N] [--sessions N] [--rate R]\n"
            "\n"
            "Prints a trace as JSON lines {timestamp, input_length, output_length, hash_ids}, timestamps in ms. It has the shape of\n"
            "production chat traffic: conversations of several turns that share their prefix, system prompts shared by many,\n"
            "Poisson arrivals, log-normal lengths, a few exact retries. A hash id stands for 512 tokens. The same parameters always give the same trace.\n"
            "\n"
            "example: sluicectl workload | sluicectl replay -\n"
            "\n"
            "  --requests N        requests (default 1500)\n"
            "  --seed N            (default 1)\n"
            "  --sessions N        conversations alive at a time (default 64)\n"
            "  --rate R            requests a second, on average (default 4)",
    .run = workload_command,
};
/* clang-format on */
