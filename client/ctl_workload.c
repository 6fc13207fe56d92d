/* client/ctl_workload.c - prints a generated trace. */
#include "client/ctl.h"
#include "client/ctl_workload_model.h"

#include <stdlib.h>

int ctl_workload(struct ctl *ctl, int argc, char **argv)
{
    int code;
    struct sl_error why = {0};
    uint64_t requests = 1500;
    uint64_t seed = 1;
    uint64_t block_tokens = 512;
    uint64_t sessions = 64;
    uint64_t prompts = 8;
    const char *rate = "4";
    const struct ctl_option options[] = {
        {.name = "requests", .count = &requests},         {.name = "seed", .count = &seed},
        {.name = "block-tokens", .count = &block_tokens}, {.name = "sessions", .count = &sessions},
        {.name = "system-prompts", .count = &prompts},    {.name = "rate", .text = &rate}};
    if (!ctl_parse(ctl, argc, argv, options, SL_COUNT(options), &code)) {
        return code;
    }
    if (ctl->word_count != 0) {
        return ctl_wrong(ctl, "'%s' is no option", ctl->words[0]);
    }
    char *end = NULL;
    const struct workload_options asked = {.requests = requests,
                                           .seed = seed,
                                           .block_tokens =
                                               (uint32_t)SL_MIN(block_tokens, UINT32_MAX),
                                           .sessions = (uint32_t)SL_MIN(sessions, UINT32_MAX),
                                           .system_prompts = (uint32_t)SL_MIN(prompts, UINT32_MAX),
                                           .rate_per_s = strtod(rate, &end)};
    if (end == rate || *end != '\0') {
        return ctl_wrong(ctl, "--rate '%s' is not a number", rate);
    }
    struct workload *workload = NULL;
    if (workload_create(&asked, &workload, &why) != SL_OK) {
        return ctl_wrong(ctl, "%s", why.text);
    }
    struct workload_request request;
    while (workload_next(workload, &request)) {
        (void)printf(
            "{\"timestamp\": %ju, \"input_length\": %u, \"output_length\": %u, \"hash_ids\": [",
            (uintmax_t)request.timestamp_ms, request.input_length, request.output_length);
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
