/* tests/bench/policy/main.c - policy_model: hits of eviction policies, computed without a node. */
#include "tests/bench/policy/policy.h"

#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SIZES_MAX      32u
#define SEEDS_MAX      1000u
#define REFERENCES_MAX (UINT64_C(1) << 28)

/* clang-format off */
static const char help[] =
"policy_model: hits of each eviction policy, computed by the registrar's own code without a node.\n"
"\n"
"  policy_model --trace FILE [--blocks N,N,...]\n"
"  policy_model --shape NAME [--seed N] [--references N]\n"
"\n"
"  --trace FILE        JSON lines with hash_ids, as for sluicectl replay\n"
"  --shape NAME        generated traffic instead: " MODEL_SHAPES "\n"
"  --references N      block references of a shape, about (default 200000)\n"
"  --seed N            seed of a shape, and of the choice of hints (default 1)\n"
"  --seeds N           all seeds 1 to N of a shape: prints how far density is from LRU at worst\n"
"  --blocks N,N,...    memory (default 2000,5000,10000,20000,50000)\n"
"  --ends-reported SHARE   share of the sessions' ends that the engine announces, 0..1\n"
"  --hints-right SHARE each request announces whether the session ends; this share of them is right\n"
"  --high SHARE        share of requests, drawn by the seed, whose blocks have high priority\n"
"  --keep SHARE        share of requests whose blocks are to be kept for an hour\n"
"  --keep-needed SHARE the same, of requests whose session continues\n"
"  --disk-blocks N,... a disk below the memory, of these sizes; 0: none. For policies that support one\n"
"  --admission NAME    blocks that it admits: all (default), reuse (likely enough to be requested again; density),\n"
"                      second (at the second request; density)\n"
"  --reuse-min CHANCE  lowest chance of reuse, 0..1 (default 0.2)\n"
"  --write-budget N    blocks a day that are written to it, by the trace's times (default: no limit)\n"
"  --restart-every N   density: the registrar is killed after each N references, and continues from what survives\n"
"  --prefetch NAME     blocks read from disk before their request: none (default), sessions (as a node does it),\n"
"                      clairvoyant (each request's blocks just before it); density\n"
"  --pauses-reported SHARE share of requests that announce when their session continues (default 0)\n"
"  --pauses-right SHARE share of those that are right; the others announce another session's pause (default 1)\n"
"  --pause-error SHARE largest error of announced pauses, as a share of the pause (default 0)\n"
"  --picture FILE.svg  hits by memory\n"
"  --json              one object\n"
"\n"
"Prints for each memory and policy: blocks hit, prompt tokens and FLOPs of prefill saved (a model\n"
"of 8 billion parameters), and the time that a reference took. With a disk also the hits in\n"
"memory, and the blocks written a hundred references.\n";
/* clang-format on */

struct options {
    const char *trace, *shape, *picture;
    uint64_t seed, seeds, references;
    uint64_t sizes[SIZES_MAX];
    uint32_t size_count;
    uint64_t disks[SIZES_MAX];
    uint32_t disk_count;
    struct model_disk_options disk;
    enum replay_hints_kind hints;
    double hint_share, high_share, keep_share;
    bool keep_needed;
    uint64_t restart_every;
    struct model_prefetch_options prefetch;
    bool json;
};

static _Noreturn void wrong(const char *what, const char *value)
{
    (void)fprintf(stderr, "policy_model: %s '%s'; see --help\n", what, value);
    exit(2);
}

static uint64_t number_parse(const char *text, const char *what, uint64_t max)
{
    char *end = NULL;
    errno = 0;
    uint64_t number = strtoull(text, &end, 10);
    if (errno != 0 || end == text || *end != '\0' || text[0] == '-' || number > max) {
        wrong(what, text);
    }
    return number;
}

static double share_parse(const char *text, const char *what)
{
    char *end = NULL;
    double share = strtod(text, &end);
    if (end == text || *end != '\0' || !(share >= 0 && share <= 1)) {
        wrong(what, text);
    }
    return share;
}

/* Returns their number. */
static uint32_t sizes_parse(char *text, uint64_t least, uint64_t out[SIZES_MAX])
{
    char *rest = NULL;
    uint32_t count = 0;
    for (char *word = strtok_r(text, ",", &rest); word != NULL; word = strtok_r(NULL, ",", &rest)) {
        if (count == SIZES_MAX) {
            wrong("too many sizes, from", word);
        }
        uint64_t size = number_parse(word, "no number of blocks", UINT32_MAX);
        if (size < least) {
            wrong("no number of blocks", word);
        }
        out[count++] = size;
    }
    if (count == 0) {
        wrong("no number of blocks", "");
    }
    return count;
}

static enum model_prefetch prefetch_parse(const char *name)
{
    static const char *const names[] = {[MODEL_PREFETCH_NONE] = "none",
                                        [MODEL_PREFETCH_SESSIONS] = "sessions",
                                        [MODEL_PREFETCH_CLAIRVOYANT] = "clairvoyant"};
    uint32_t i = 0;
    while (i < SL_COUNT(names) && strcmp(name, names[i]) != 0) {
        i++;
    }
    if (i == SL_COUNT(names)) {
        wrong("no way of prefetch:", name);
    }
    return (enum model_prefetch)i;
}

static void options_parse(struct options *options, int argc, char **argv)
{
    enum {
        TRACE = 1,
        SHAPE,
        REFERENCES,
        SEED,
        SEEDS,
        BLOCKS,
        DISKS,
        ADMISSION,
        REUSE,
        BUDGET,
        ENDS,
        RIGHT,
        HIGH,
        KEEP,
        NEEDED,
        RESTART,
        PREFETCH,
        TOLD,
        TOLD_RIGHT,
        TOLD_ERROR,
        PICTURE,
        JSON,
        HELP
    };
    static const struct option names[] = {{"trace", required_argument, NULL, TRACE},
                                          {"shape", required_argument, NULL, SHAPE},
                                          {"references", required_argument, NULL, REFERENCES},
                                          {"seed", required_argument, NULL, SEED},
                                          {"seeds", required_argument, NULL, SEEDS},
                                          {"blocks", required_argument, NULL, BLOCKS},
                                          {"disk-blocks", required_argument, NULL, DISKS},
                                          {"admission", required_argument, NULL, ADMISSION},
                                          {"reuse-min", required_argument, NULL, REUSE},
                                          {"write-budget", required_argument, NULL, BUDGET},
                                          {"ends-reported", required_argument, NULL, ENDS},
                                          {"hints-right", required_argument, NULL, RIGHT},
                                          {"high", required_argument, NULL, HIGH},
                                          {"keep", required_argument, NULL, KEEP},
                                          {"keep-needed", required_argument, NULL, NEEDED},
                                          {"restart-every", required_argument, NULL, RESTART},
                                          {"prefetch", required_argument, NULL, PREFETCH},
                                          {"pauses-reported", required_argument, NULL, TOLD},
                                          {"pauses-right", required_argument, NULL, TOLD_RIGHT},
                                          {"pause-error", required_argument, NULL, TOLD_ERROR},
                                          {"picture", required_argument, NULL, PICTURE},
                                          {"json", no_argument, NULL, JSON},
                                          {"help", no_argument, NULL, HELP},
                                          {0}};
    int got;
    while ((got = getopt_long(argc, argv, "", names, NULL)) != -1) {
        switch (got) {
        case TRACE:
            options->trace = optarg;
            break;
        case SHAPE:
            options->shape = optarg;
            break;
        case REFERENCES:
            options->references = number_parse(optarg, "no number of references", REFERENCES_MAX);
            break;
        case SEED:
            options->seed = number_parse(optarg, "no seed", UINT64_MAX);
            break;
        case SEEDS:
            options->seeds = number_parse(optarg, "no number of seeds", SEEDS_MAX);
            break;
        case BLOCKS:
            options->size_count = sizes_parse(optarg, 1, options->sizes);
            break;
        case DISKS:
            options->disk_count = sizes_parse(optarg, 0, options->disks);
            break;
        case ADMISSION:
            if (!model_admission_parse(optarg, &options->disk.admission)) {
                wrong("no way of admission:", optarg);
            }
            break;
        case REUSE:
            options->disk.reuse_min = share_parse(optarg, "no chance");
            break;
        case BUDGET:
            options->disk.bytes_a_day = number_parse(optarg, "no number of blocks", UINT64_MAX);
            break;
        case ENDS:
        case RIGHT:
            options->hints = got == ENDS ? REPLAY_HINTS_ENDS : REPLAY_HINTS_ALL;
            options->hint_share = share_parse(optarg, "no share");
            break;
        case HIGH:
            options->high_share = share_parse(optarg, "no share");
            break;
        case KEEP:
        case NEEDED:
            options->keep_needed = got == NEEDED;
            options->keep_share = share_parse(optarg, "no share");
            break;
        case RESTART:
            options->restart_every = number_parse(optarg, "no number of references", UINT64_MAX);
            break;
        case PREFETCH:
            options->prefetch.kind = prefetch_parse(optarg);
            break;
        case TOLD:
            options->prefetch.said.told = share_parse(optarg, "no share");
            break;
        case TOLD_RIGHT:
            options->prefetch.said.right = share_parse(optarg, "no share");
            break;
        case TOLD_ERROR:
            options->prefetch.said.error = share_parse(optarg, "no share");
            break;
        case PICTURE:
            options->picture = optarg;
            break;
        case JSON:
            options->json = true;
            break;
        case HELP:
            (void)fputs(help, stdout);
            exit(0);
        default:
            exit(2);
        }
    }
    if (optind < argc) {
        wrong("a word without an option:", argv[optind]);
    }
    if ((options->trace == NULL) == (options->shape == NULL)) {
        wrong("either --trace or --shape is needed, not", options->trace == NULL ? "none" : "both");
    }
    if (options->seeds > 0 && options->shape == NULL) {
        wrong("--seeds needs", "--shape");
    }
}

static _Noreturn void failed(const struct sl_error *why)
{
    (void)fprintf(stderr, "policy_model: %s\n", why->text);
    exit(1);
}

static void trace_get(const struct options *options, uint64_t seed, struct replay_trace *out)
{
    struct sl_error why = {0};
    sl_err err = options->trace != NULL
                     ? replay_trace_read(options->trace, UINT64_MAX, MODEL_BLOCK_TOKENS, out, &why)
                     : model_generate(options->shape, seed, options->references, out, &why);
    if (err != SL_OK) {
        failed(&why);
    }
}

/* Returns false if this policy supports no such disk. */
static bool policy_run(const struct options *options, const struct model_policy *policy,
                       const struct replay_trace *trace, uint64_t blocks, uint64_t disk_blocks,
                       struct model_result *out)
{
    struct model_options plan = {
        .capacity_bytes = blocks,
        .block_tokens = MODEL_BLOCK_TOKENS,
        .disk = options->disk,
        .hints = {.kind = options->hints, .share = options->hint_share, .seed = options->seed},
        .high_share = options->high_share,
        .keep_share = options->keep_share,
        .keep_needed = options->keep_needed,
        .restart_every = options->restart_every,
        .prefetch = options->prefetch};
    uint64_t *pauses = options->prefetch.said.told > 0 ? replay_pauses(trace) : NULL;
    plan.disk.capacity_bytes = disk_blocks;
    plan.prefetch.pauses = pauses;
    plan.prefetch.said.seed = options->seed;
    *out = (struct model_result){0};
    sl_err err = policy->run(trace, &plan, out);
    free(pauses);
    if (err != SL_OK && err != SL_ERR_UNSUPPORTED) {
        struct sl_error why = {0};
        (void)sl_fail(&why, err, "no memory for %s", policy->name);
        failed(&why);
    }
    return err == SL_OK;
}

static double share(double part, double whole)
{
    return whole > 0 ? part / whole : 0;
}

static double hit_share(const struct model_result *result)
{
    return share((double)result->hit_count, (double)result->reference_count);
}

static json_t *result_json(uint64_t blocks, uint64_t disk, const char *policy,
                           const struct model_result *result)
{
    return json_pack(
        "{s:I, s:I, s:s, s:f, s:f, s:f, s:f, s:I, s:I, s:f}", "blocks", (json_int_t)blocks,
        "disk_blocks", (json_int_t)disk, "policy", policy, "hit_share", hit_share(result),
        "memory_hit_share",
        share((double)result->memory_hit_count, (double)result->reference_count),
        "tokens_saved_share", share((double)result->tokens_saved, (double)result->tokens),
        "flops_saved_share", share(result->flops_saved, result->flops), "written",
        (json_int_t)result->written_count, "rewritten", (json_int_t)result->rewritten_count,
        "us_per_reference", share(result->seconds * 1e6, (double)result->reference_count));
}

static void result_print(uint64_t blocks, uint64_t disk, const char *policy,
                         const struct model_result *result)
{
    double references = (double)result->reference_count;
    printf("%10" PRIu64, blocks);
    if (disk > 0) {
        printf(" + %9" PRIu64, disk);
    }
    printf("  %-12s %8.2f %8.2f %8.2f %9.3f", policy, 100 * hit_share(result),
           100 * share((double)result->tokens_saved, (double)result->tokens),
           100 * share(result->flops_saved, result->flops),
           share(result->seconds * 1e6, references));
    if (disk > 0) {
        printf("   memory %6.2f, written %6.2f, rewritten %6.2f",
               100 * share((double)result->memory_hit_count, references),
               100 * share((double)result->written_count, references),
               100 * share((double)result->rewritten_count, references));
    }
    if (result->prefetched_count > 0) {
        uint64_t disk_hits = result->hit_count - result->memory_hit_count;
        printf(
            "\n%26s prefetched %.2f, requested %.2f, evicted %.2f; %.1f %% of hits that were only on disk",
            "", 100 * share((double)result->prefetched_count, references),
            100 * share((double)result->prefetched_hit_count, references),
            100 * share((double)result->prefetched_lost_count, references),
            100 * share((double)result->prefetched_hit_count,
                        (double)(result->prefetched_hit_count + disk_hits)));
    }
    (void)putchar('\n');
}

static void picture_write(const struct options *options, const double *shares)
{
    const char *names[MODEL_POLICY_COUNT];
    for (uint32_t i = 0; i < MODEL_POLICY_COUNT; i++) {
        names[i] = model_policies[i]->name;
    }
    struct model_picture picture = {.title = options->trace != NULL ? "blocks hit" : options->shape,
                                    .names = names,
                                    .name_count = MODEL_POLICY_COUNT,
                                    .sizes = options->sizes,
                                    .size_count = options->size_count,
                                    .shares = shares};
    struct sl_error why = {0};
    if (options->picture != NULL &&
        model_picture_write(options->picture, &picture, &why) != SL_OK) {
        failed(&why);
    }
}

/* Returns the policy's hits, 0 if it cannot have that disk. */
static double one_print(const struct options *options, const struct model_policy *policy,
                        const struct replay_trace *trace, uint64_t blocks, uint64_t disk,
                        json_t *rows)
{
    struct model_result result;
    if (!policy_run(options, policy, trace, blocks, disk, &result)) {
        return 0;
    }
    if (options->json) {
        (void)json_array_append_new(rows, result_json(blocks, disk, policy->name, &result));
    } else {
        result_print(blocks, disk, policy->name, &result);
    }
    return hit_share(&result);
}

static void all_print(const struct options *options, const struct replay_trace *trace)
{
    double shares[MODEL_POLICY_COUNT * SIZES_MAX];
    json_t *rows = json_array();
    if (!options->json) {
        printf("%" PRIu64 " requests, %" PRIu64
               " block references\n\n%10s  %-12s %8s %8s %8s %9s\n",
               trace->request_count, trace->id_count, "blocks", "policy", "blocks %", "tokens %",
               "FLOPs %", "us/ref");
    }
    for (uint32_t size = 0; size < options->size_count; size++) {
        for (uint32_t disk = 0; disk < options->disk_count; disk++) {
            for (uint32_t i = 0; i < MODEL_POLICY_COUNT; i++) {
                double hit = one_print(options, model_policies[i], trace, options->sizes[size],
                                       options->disks[disk], rows);
                shares[i * options->size_count + size] = hit;
            }
        }
    }
    if (options->json) {
        (void)json_dumpf(rows, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(6));
        (void)putchar('\n');
    }
    json_decref(rows);
    picture_write(options, shares);
}

/* Prints how far density is below LRU at worst, in points. */
static void seeds_print(const struct options *options)
{
    double worst = -100;
    double sum = 0;
    for (uint64_t seed = 1; seed <= options->seeds; seed++) {
        struct replay_trace trace;
        trace_get(options, seed, &trace);
        for (uint32_t size = 0; size < options->size_count; size++) {
            struct model_result lru, mine;
            (void)policy_run(options, &model_lru, &trace, options->sizes[size], 0, &lru);
            (void)policy_run(options, &model_density, &trace, options->sizes[size], 0, &mine);
            double under = 100 * (hit_share(&lru) - hit_share(&mine));
            worst = SL_MAX(worst, under);
            sum -= under;
            if (!options->json) {
                printf("seed %3" PRIu64 " %8" PRIu64 " blocks: lru %6.2f, density %6.2f\n", seed,
                       options->sizes[size], 100 * hit_share(&lru), 100 * hit_share(&mine));
            }
        }
        replay_trace_free(&trace);
    }
    double mean = share(sum, (double)(options->seeds * options->size_count));
    if (options->json) {
        printf(
            "{\"shape\": \"%s\", \"points_under_lru_max\": %.3f, \"points_over_lru_mean\": %.3f}\n",
            options->shape, worst, mean);
    } else {
        printf("%s: at worst %.2f points under LRU, in the mean %.2f over it\n", options->shape,
               worst, mean);
    }
}

int main(int argc, char **argv)
{
    struct options options = {.seed = 1,
                              .references = 200000,
                              .sizes = {2000, 5000, 10000, 20000, 50000},
                              .size_count = 5,
                              .disk_count = 1,
                              .disk = {.reuse_min = 0.2},
                              .prefetch = {.said = {.right = 1}}};
    options_parse(&options, argc, argv);
    if (options.seeds > 0) {
        seeds_print(&options);
        return 0;
    }
    struct replay_trace trace;
    trace_get(&options, options.seed, &trace);
    all_print(&options, &trace);
    replay_trace_free(&trace);
    return 0;
}
