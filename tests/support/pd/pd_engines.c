/* tests/support/pd/pd_engines.c - runs a prefill and a decode engine as two processes, kills one if
 * asked, and reports. */
#include "tests/support/pd/pd_engines.h"
#include "runtime/keys/sl_keys.h"

#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define STEP_NS    (20 * SL_NS_PER_MS)
#define SILENCE_NS (60 * SL_NS_PER_S) /* in addition to an op's deadline */

static int options_check(struct ctl *ctl, struct pd_options *options)
{
    struct sl_error why;
    enum sl_handover_mode mode = SL_HANDOVER_BY_STORAGE;
    if (ctl->word_count != 0) {
        return ctl_usage_error(ctl, "no arguments");
    }
    if (sl_keys_format_check(options->key_format, &why) != SL_OK ||
        sl_handover_mode_get(&mode, &why) != SL_OK) {
        return ctl_usage_error(ctl, "%s", why.text);
    }
    if (options->requests < 1 || options->ranks < 1 || options->ranks > 64 || options->layers < 1 ||
        options->layers > PD_LAYERS_MAX || options->block_bytes < options->layers ||
        options->block_bytes > SL_VALUE_BYTES_MAX) {
        return ctl_usage_error(ctl,
                               "at least 1 request, 1 to 64 ranks, 1 to %u layers, --block-bytes "
                               "at least as many",
                               PD_LAYERS_MAX);
    }
    if (options->blocks < 1 || options->blocks > PD_BLOCKS_MAX || options->concurrency < 1 ||
        options->concurrency > PD_CONCURRENCY_MAX || options->op_timeout_ns == 0) {
        return ctl_usage_error(ctl, "1 to %u --blocks, 1 to %u --concurrency, --op-timeout above 0",
                               PD_BLOCKS_MAX, PD_CONCURRENCY_MAX);
    }
    if (options->mode == NULL) {
        bool direct = getenv("FD_PD_TRANSFER_VIA_STORAGE") != NULL && mode == SL_HANDOVER_DIRECT;
        options->mode = direct ? "direct" : "storage";
    }
    options->direct = strcmp(options->mode, "direct") == 0;
    if (!options->direct && strcmp(options->mode, "storage") != 0) {
        return ctl_usage_error(ctl, "--mode is storage or direct, not %s", options->mode);
    }
    return CTL_SUCCESS;
}

static pid_t side_start(const struct ctl *ctl, const struct pd_options *options,
                        struct pd_report *report, const int channels[2], bool prefill)
{
    pid_t parent = getpid();
    pid_t pid = fork();
    if (pid != 0) {
        return pid;
    }
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) {
        _exit(CTL_NO);
    }
    (void)close(channels[prefill ? 1 : 0]);
    int code = prefill ? pd_prefill_run(ctl, options, report, channels[0])
                       : pd_decode_run(ctl, options, report, channels[1]);
    (void)fflush(stdout);
    _exit(code);
}

struct run {
    pid_t prefill, decode; /* 0: ended */
    int prefill_code, decode_code;
    uint64_t wall_ns;
};

static void side_wait(pid_t *pid, int *code)
{
    int status;
    if (*pid > 0 && waitpid(*pid, &status, WNOHANG) == *pid) {
        *code = WIFEXITED(status) ? WEXITSTATUS(status) : CTL_NO;
        *pid = 0;
    }
}

static void side_end(pid_t *pid)
{
    if (*pid > 0) {
        (void)kill(*pid, SIGKILL);
        (void)waitpid(*pid, NULL, 0);
        *pid = 0;
    }
}

/* Waits until both have ended, or one failed to start, or nothing has happened for long. */
static void run_watch(const struct pd_options *options, struct pd_report *report, struct run *run)
{
    uint64_t started_ns = sl_clock_monotonic_ns(), moved_ns = started_ns, seen = 0;
    const struct timespec step = {.tv_nsec = STEP_NS};
    while (run->decode > 0) {
        (void)nanosleep(&step, NULL);
        uint64_t now_ns = sl_clock_monotonic_ns();
        uint64_t done = atomic_load(&report->progress);
        moved_ns = done != seen ? now_ns : moved_ns;
        seen = done;
        if (options->kill_prefill && run->prefill > 0 && done >= options->requests / 2) {
            side_end(&run->prefill);
            run->prefill_code = CTL_SUCCESS;
            atomic_store(&report->prefill_killed, true);
        }
        side_wait(&run->prefill, &run->prefill_code);
        side_wait(&run->decode, &run->decode_code);
        bool failed = run->prefill == 0 && run->prefill_code != CTL_SUCCESS;
        if (failed || now_ns - moved_ns > options->op_timeout_ns + SILENCE_NS) {
            run->decode_code = failed ? run->prefill_code : CTL_NO;
            side_end(&run->decode);
        }
    }
    for (uint32_t i = 0; i < 250 && run->prefill > 0; i++) { /* it was asked to end */
        (void)nanosleep(&step, NULL);
        side_wait(&run->prefill, &run->prefill_code);
    }
    side_end(&run->prefill);
    run->wall_ns = sl_clock_monotonic_ns() - started_ns;
}

static void count_set(json_t *object, const char *name, uint64_t value)
{
    (void)json_object_set_new(object, name, ctl_json_u64(value));
}

static json_t *report_json(const struct pd_options *options, const struct pd_report *report,
                           const struct run *run)
{
    json_t *object = json_object();
    (void)json_object_set_new(object, "mode", json_string(options->mode));
    count_set(object, "requests", report->announced);
    count_set(object, "complete", report->complete);
    count_set(object, "recomputed", report->recomputed);
    count_set(object, "errors_502", report->errors_502);
    count_set(object, "errors_other", report->errors_other);
    count_set(object, "gone", report->gone);
    count_set(object, "wrong_bytes", report->wrong_bytes);
    count_set(object, "late_writes", report->late_writes);
    count_set(object, "blocks_held", report->blocks_held);
    count_set(object, "partial_tails", report->partial_tails);
    count_set(object, "blocks_loaded", report->blocks_loaded);
    count_set(object, "from_memory", report->from_memory);
    count_set(object, "from_disk", report->from_disk);
    count_set(object, "from_remote", report->from_remote);
    count_set(object, "bytes", report->bytes);
    count_set(object, "output_stored", report->output_stored);
    count_set(object, "output_failed", report->output_failed);
    count_set(object, "sent", report->sent);
    count_set(object, "send_failed", report->send_failed);
    count_set(object, "layers_early", report->layers_early);
    count_set(object, "layers_ahead", report->layers_ahead);
    count_set(object, "wall_ns", run->wall_ns);
    count_set(object, "handover_p50_ns", ctl_histogram_quantile(&report->handover_ns, 0.5));
    count_set(object, "handover_p99_ns", ctl_histogram_quantile(&report->handover_ns, 0.99));
    count_set(object, "prefill_longest_turn_ns", report->loop_longest_ns);
    (void)json_object_set_new(object, "prefill_killed",
                              json_boolean(atomic_load(&report->prefill_killed)));
    (void)json_object_set_new(object, "first_error", json_string(report->first_error));
    (void)json_object_set_new(object, "send_error", json_string(report->send_error));
    return object;
}

static bool report_fine(const struct pd_options *options, const struct pd_report *report)
{
    uint64_t ended = report->complete + report->recomputed + report->errors_502;
    bool whole = options->kill_prefill
                     ? ended == options->requests && atomic_load(&report->prefill_killed)
                     : report->complete == options->requests;
    return whole && report->errors_other == 0 && report->wrong_bytes == 0 &&
           report->late_writes == 0 && report->blocks_held == 0;
}

static int demo_run(struct ctl *ctl, const struct pd_options *options)
{
    int channels[2];
    struct run run = {.decode_code = CTL_NO, .prefill_code = CTL_NO};
    struct sl_error why;
    struct pd_report *report =
        mmap(NULL, sizeof *report, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (report == MAP_FAILED ||
        socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, channels) != 0) {
        (void)sl_fail(&why, SL_ERR_OS, "no memory or no socket pair");
        return ctl_failed(ctl, &why);
    }
    run.prefill = side_start(ctl, options, report, channels, true);
    run.decode = side_start(ctl, options, report, channels, false);
    (void)close(channels[0]);
    (void)close(channels[1]);
    if (run.prefill > 0 && run.decode > 0) {
        run_watch(options, report, &run);
    }
    side_end(&run.prefill);
    side_end(&run.decode);
    int code = run.decode_code;
    if (code == CTL_SUCCESS) {
        ctl_print_json(report_json(options, report, &run));
        code = report_fine(options, report) ? CTL_SUCCESS : CTL_NO;
    }
    (void)munmap(report, sizeof *report);
    return code;
}

static int pd_command(struct ctl *ctl, int argc, char **argv)
{
    int code;
    struct pd_options asked = {.key_format = "sluice",
                               .requests = 20,
                               .seed = 1,
                               .ranks = 1,
                               .layers = 4,
                               .block_bytes = 4096,
                               .blocks = 8,
                               .concurrency = 8,
                               .op_timeout_ns = 2 * SL_NS_PER_S};
    const struct ctl_option options[] = {
        {.name = "mode", .text = &asked.mode},
        {.name = "requests", .count = &asked.requests},
        {.name = "seed", .count = &asked.seed},
        {.name = "ranks", .count = &asked.ranks},
        {.name = "layers", .count = &asked.layers},
        {.name = "block-bytes", .size = &asked.block_bytes},
        {.name = "blocks", .count = &asked.blocks},
        {.name = "concurrency", .count = &asked.concurrency},
        {.name = "key-format", .text = &asked.key_format},
        {.name = "op-timeout", .duration = &asked.op_timeout_ns},
        {.name = "kill-prefill", .flag = &asked.kill_prefill},
        {.name = "by-layers", .flag = &asked.by_layers},
        {.name = "prefill-instance", .text = &asked.prefill_instance},
        {.name = "decode-instance", .text = &asked.decode_instance},
        {.name = "prefill-config", .text = &asked.prefill_config},
        {.name = "decode-config", .text = &asked.decode_config}};
    if (!ctl_parse(ctl, argc, argv, options, SL_COUNT(options), &code)) {
        return code;
    }
    code = options_check(ctl, &asked);
    return code == CTL_SUCCESS ? demo_run(ctl, &asked) : code;
}

/* clang-format off */
static const struct ctl_command command = {
    .name = "pd_engines",
    .registers = true,
    .summary = "hand requests from a prefill to a decode engine",
    .help = "pd_engines [OPTIONS]\n"
            "\n"
            "Runs a prefill and a decode engine as two processes on host memory. Of every request decode announces it, prefill\n"
            "computes its input, most of them with an incomplete last block, and hands it over; decode loads it, checks every byte,\n"
            "and stores what it added. Code 0: all complete, no wrong byte, no block still held; with --kill-prefill also: all others\n"
            "ended with an error of class 502 by their deadlines.\n"
            "\n"
            "  --mode storage|direct   (default: as FD_PD_TRANSFER_VIA_STORAGE says, storage when it is not set)\n"
            "  --requests N            (default 20)\n"
            "  --concurrency N         at a time (default 8)\n"
            "  --blocks N              longest input, in blocks of 64 tokens (default 8)\n"
            "  --ranks N               ranks of both engines (default 1)\n"
            "  --layers N              layers of a block (default 4)\n"
            "  --block-bytes SIZE      one block of one rank (default 4096)\n"
            "  --key-format F          one with keys for incomplete blocks (default sluice)\n"
            "  --op-timeout T          deadline of a hand-over (default 2s)\n"
            "  --seed N                (default 1)\n"
            "  --kill-prefill          kill -9 prefill when half of the requests have ended\n"
            "  --by-layers             layer by layer: prefill stores or pushes a layer while it computes\n"
            "                          the next ones, decode checks each on arrival\n"
            "  --prefill-instance NAME, --decode-instance NAME\n"
            "                          two nodes that are each other's peers (default: one)\n"
            "  --prefill-config FILE, --decode-config FILE\n"
            "                          their settings, where these differ in more than the name\n"
            "The report is JSON.\n"
            CTL_HELP_COMMON,
    .run = pd_command,
};
/* clang-format on */

int main(int argc, char **argv)
{
    struct ctl ctl = {.command = &command};
    int code = pd_command(&ctl, argc, argv);
    for (uint32_t i = 0; i < ctl.setting_count; i++) {
        free(ctl.setting_texts[i]);
    }
    sl_config_destroy(&ctl.config);
    return code;
}
