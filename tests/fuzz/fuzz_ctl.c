/* tests/fuzz/fuzz_ctl.c - sluicectl over a node's directories with arbitrary contents: metrics
 * pages and logs as `status` and `trace` read them; command lines, settings from the environment,
 * lines of `keys`. Every command ends with one of the documented exit codes.
 *
 * Input: bytes of choices; the rest is the changes of the page, the log, or the words of the
 * command line, one a line. */
#include "client/tools/ctl/commands.h"
#include "runtime/base/metrics_page.h"
#include "runtime/base/sl_metrics.h"
#include "tests/fuzz/hostile.h"
#include "tests/support/own_id.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length_bytes);

#define WORDS_MAX  24u
#define TEXT_MAX   8192u
#define PAGE_FILES 2u

static char directory[64];
static unsigned char *page; /* a valid one, as an actor makes it */
static uint64_t page_bytes;
static char shm_option[96], log_option[96], runtime_option[96];

static void path_of(char out[160], const char *name)
{
    (void)snprintf(out, 160, "%s/%s", directory, name);
}

static void file_write(const char *name, const void *bytes, size_t length)
{
    char path[160];
    path_of(path, name);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    HOSTILE_MUST(fd >= 0 && write(fd, bytes, length) == (ssize_t)length);
    (void)close(fd);
}

static void page_make(void)
{
    char path[160];
    struct stat status;
    struct sl_metrics *metrics = NULL;
    path_of(path, "metrics.registrar");
    struct sl_metrics_options options = {
        .path = path, .actor = "registrar", .self = own_id(), .trace_events = 64};
    HOSTILE_MUST(sl_metrics_open(&options, &metrics, NULL) == SL_OK);
    sl_metric_add(metrics, sl_metric_define(metrics, "used_bytes"), 4711);
    sl_histogram_add(metrics, sl_histogram_define(metrics, "load_ns"), 123456);
    sl_metrics_health(metrics, SL_HEALTH_DEGRADED, "disk full");
    for (uint32_t i = 0; i < 70; i++) {
        sl_trace_event(metrics, 1000 + i, 0x1234 + i % 3, "> reserve", "client.1.0", i);
    }
    sl_metrics_close(&metrics);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    HOSTILE_MUST(fd >= 0 && fstat(fd, &status) == 0);
    page_bytes = (uint64_t)status.st_size;
    page = malloc(page_bytes);
    HOSTILE_MUST(page != NULL && read(fd, page, page_bytes) == (ssize_t)page_bytes);
    (void)close(fd);
}

static void leave(void)
{
    hostile_directory_remove(directory);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc;
    (void)argv;
    (void)snprintf(directory, sizeof(directory), "/dev/shm/sluice-fuzz-ctl-XXXXXX");
    HOSTILE_MUST(mkdtemp(directory) != NULL);
    (void)atexit(leave);
    (void)snprintf(shm_option, sizeof(shm_option), "--shm-dir=%s", directory);
    (void)snprintf(log_option, sizeof(log_option), "--log-dir=%s", directory);
    (void)snprintf(runtime_option, sizeof(runtime_option), "--runtime-dir=%s", directory);
    page_make();
    /* Reports of the fuzzer itself do not use these. */
    stdout = fopen("/dev/null", "we");
    stderr = fopen("/dev/null", "we");
    HOSTILE_MUST(stdout != NULL && stderr != NULL);
    return 0;
}

/* Replaces the Python script that the commands would start with their data (--wrap). */
int __wrap_ctl_script_print(const char *name, const char *const words[], json_t *facts);
int __wrap_ctl_script_print(const char *name, const char *const words[], json_t *facts)
{
    (void)name;
    (void)words;
    HOSTILE_MUST(facts != NULL && json_dumpf(facts, stdout, JSON_COMPACT) == 0);
    json_decref(facts);
    return CTL_SUCCESS;
}

static int run(const struct ctl_command *command, int argc, char **argv)
{
    struct ctl ctl = {.command = command};
    int code = command->run(&ctl, argc, argv);
    for (uint32_t i = 0; i < ctl.setting_count; i++) {
        free(ctl.setting_texts[i]);
    }
    sl_config_destroy(&ctl.config);
    HOSTILE_MUST(code >= CTL_SUCCESS && code <= CTL_UNREACHABLE);
    return code;
}

static void pages_change(struct hostile_input *input)
{
    static const char *const names[PAGE_FILES] = {"metrics.registrar", "metrics.swapper.0"};
    unsigned char *copy = malloc(page_bytes);
    HOSTILE_MUST(copy != NULL);
    for (uint32_t i = 0; i < PAGE_FILES; i++) {
        uint64_t length = page_bytes;
        memcpy(copy, page, page_bytes);
        uint64_t count = hostile_byte(input) % 8;
        for (uint64_t k = 0; k < count; k++) {
            uint64_t how = hostile_byte(input);
            uint64_t at = hostile_byte(input) << 8;
            at |= hostile_byte(input);
            /* The head, where the sizes are, or the ring of events, or anywhere. */
            at = how < 96    ? at % 64 * 4
                 : how < 192 ? sizeof(struct metrics_page) + at % 1024 * 4
                             : at * 4 % page_bytes;
            uint64_t value = hostile_number(input, 0, UINT64_MAX);
            memcpy(copy + SL_MIN(at, page_bytes - 8), &value, (how & 1) != 0 ? 8 : 4);
        }
        if (count == 7) {
            length = hostile_number(input, 0, page_bytes);
        }
        file_write(names[i], copy, length);
    }
    free(copy);
}

static void log_make(struct hostile_input *input)
{
    static const char line[] = "{\"ns\":5,\"trace\":\"0000000000001234\",\"msg\":\"hello\","
                               "\"actor\":\"keyer\"}\n";
    size_t left = (size_t)(input->end - input->at);
    char *text = malloc(sizeof(line) + left);
    HOSTILE_MUST(text != NULL);
    memcpy(text, line, sizeof(line) - 1);
    for (size_t i = 0; i < left; i++) { /* a valid line, with some bytes of the input */
        text[sizeof(line) - 1 + i] = (char)input->at[i];
    }
    file_write("keyer.jsonl", text, sizeof(line) - 1 + left);
    free(text);
}

static void see_pages(struct hostile_input *input)
{
    static const char *const how_to_trace[][2] = {
        {"1234", NULL}, {"--last", "3"}, {"--slow", "1000"}, {"--last=18446744073709551615", NULL}};
    uint64_t how = hostile_byte(input);
    char *argv[10] = {"x", shm_option, log_option, runtime_option};
    int argc = 4;
    if ((how & 1) != 0) {
        argv[argc++] = "--json";
    }
    pages_change(input);
    log_make(input);
    if ((how & 2) != 0) {
        if ((how & 4) != 0) {
            argv[argc++] = "--metrics";
        }
        (void)run(&ctl_status, argc, argv);
        return;
    }
    const char *const *words = how_to_trace[how / 4 % SL_COUNT(how_to_trace)];
    for (uint32_t i = 0; i < 2 && words[i] != NULL; i++) {
        argv[argc++] = (char *)(uintptr_t)words[i];
    }
    (void)run(&ctl_trace, argc, argv);
}

/* Words of the input, one a line; each in memory of its exact length, which shows reads past it. */
static int words_of(struct hostile_input *input, char *argv[WORDS_MAX + 1])
{
    int argc = 0;
    argv[argc++] = strdup("sluicectl");
    while (input->at < input->end && argc < (int)WORDS_MAX) {
        size_t left = (size_t)(input->end - input->at);
        const uint8_t *end = memchr(input->at, '\n', left);
        size_t length = end == NULL ? left : (size_t)(end - input->at);
        argv[argc] = strndup((const char *)input->at, length);
        HOSTILE_MUST(argv[argc++] != NULL);
        input->at += end == NULL ? length : length + 1;
    }
    argv[argc] = NULL;
    return argc;
}

static void command_line(struct hostile_input *input)
{
    uint64_t how = hostile_byte(input);
    char *words[WORDS_MAX + 1];
    char *argv[WORDS_MAX + 1];
    int argc = words_of(input, words);
    memcpy(argv, words, sizeof(argv)); /* the commands reorder them */
    if (how % 4 == 0) {
        (void)run(&ctl_config, argc, argv);
    } else if (how % 4 == 1) { /* reads standard input, which is empty here */
        (void)run(&ctl_keys, argc, argv);
    } else if (how % 4 == 2) {
        (void)run(&ctl_status, argc, argv);
    } else {
        struct sl_config *config = NULL;
        struct sl_error why = {0};
        int rest = 0;
        HOSTILE_MUST(sl_config_create(&config, NULL) == SL_OK);
        if (sl_config_load(config, NULL, argc, argv, (how & 4) != 0 ? &rest : NULL, &why) !=
            SL_OK) {
            HOSTILE_MUST(why.code != SL_OK && why.text[0] != '\0');
        } else {
            HOSTILE_MUST(rest >= 0 && rest <= argc);
        }
        sl_config_destroy(&config);
    }
    for (int i = 0; i < argc; i++) {
        free(words[i]);
    }
}

/* name=value, one a line, as SLUICE_NAME in the environment. */
static void environment(struct hostile_input *input)
{
    char *words[WORDS_MAX + 1];
    char names[WORDS_MAX][64];
    uint32_t count = 0;
    int argc = words_of(input, words);
    for (int i = 1; i < argc; i++) {
        char *equals = strchr(words[i], '=');
        if (equals == NULL) {
            continue;
        }
        *equals = '\0';
        (void)snprintf(names[count], sizeof(names[count]), "SLUICE_%s", words[i]);
        count += setenv(names[count], equals + 1, 1) == 0;
    }
    struct sl_config *config = NULL;
    struct sl_error why = {0};
    HOSTILE_MUST(sl_config_create(&config, NULL) == SL_OK);
    if (sl_config_load(config, NULL, 0, NULL, NULL, &why) == SL_OK) {
        struct sl_paths paths;
        sl_err err = sl_paths_from(config, &paths, &why);
        HOSTILE_MUST(err == SL_OK || why.text[0] != '\0');
    } else {
        HOSTILE_MUST(why.code == SL_ERR_CONFIG && why.text[0] != '\0');
    }
    sl_config_destroy(&config);
    for (uint32_t i = 0; i < count; i++) {
        (void)unsetenv(names[i]);
    }
    for (int i = 0; i < argc; i++) {
        free(words[i]);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length_bytes)
{
    struct hostile_input input = {bytes, bytes + SL_MIN(length_bytes, (size_t)TEXT_MAX)};
    uint64_t what = hostile_byte(&input);
    if (what % 4 < 2) {
        see_pages(&input);
    } else if (what % 4 == 2) {
        command_line(&input);
    } else {
        environment(&input);
    }
    return 0;
}
