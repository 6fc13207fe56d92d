/* tests/node/contributions_probe.c - a client that executes commands, a line each, or reads one
 * value repeatedly; contributions_test.py and replace_test.py drive it.
 *
 *   contributions_probe INSTANCE RUNTIME_DIR SHM_DIR
 *
 * Commands: contribute NAME BYTES 0|1 (lasting); withdraw NAME; list; put KEY NUMBER BYTES
 * [NAME]; replace KEY NUMBER BYTES; get KEY; exists KEY; read KEY (until the next line). Each is
 * answered by one line that begins with the code's name. Every word of a value has its number,
 * so that a mix of two is detected. */
#include "client/include/sluice.h"

#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define VALUE_BYTES_MAX (8u << 20)
#define WORDS_MAX       6

static struct sl_client *client;
static uint64_t value[VALUE_BYTES_MAX / sizeof(uint64_t)];

static uint64_t word_of(uint64_t number, uint64_t at)
{
    return number << 32 | (at * UINT64_C(2654435761) & UINT32_MAX);
}

static struct sl_object_key key_of(const char *text)
{
    return (struct sl_object_key){.at = text, .length = (uint32_t)strlen(text)};
}

static sl_err put(const char *key, uint64_t number, uint64_t bytes, const char *name, bool replace,
                  struct sl_error *why)
{
    const struct sl_iov piece = {.at = value, .length_bytes = bytes};
    const struct sl_iov_list item = {.key = key_of(key), .at = &piece, .count = 1};
    const struct sl_put_options terms = {.replace = replace,
                                         .contributions = name == NULL ? NULL : &name,
                                         .contribution_count = name == NULL ? 0 : 1};
    sl_err code = SL_OK;
    if (bytes > sizeof value || bytes % sizeof(uint64_t) != 0) {
        return SL_ERR_INVALID;
    }
    for (uint64_t i = 0; i < bytes / sizeof(uint64_t); i++) {
        value[i] = word_of(number, i);
    }
    sl_err err = sl_putv(client, &item, 1, &terms, &code, 0, why);
    return err != SL_OK ? err : code;
}

/* Reads the number of the key's value; SL_ERR_CORRUPT: bytes of more than one. */
static sl_err get(const char *key, uint64_t *number, struct sl_error *why)
{
    uint64_t length = 0;
    const struct sl_buffer buffer = {.at = value, .length_bytes = sizeof value};
    sl_err err = sl_get(client, key_of(key), buffer, &length, 0, why);
    *number = value[0] >> 32;
    for (uint64_t i = 0; err == SL_OK && i < length / sizeof(uint64_t); i++) {
        if (value[i] != word_of(*number, i)) {
            (void)snprintf(why->text, sizeof why->text, "word %ju of %ju bytes is another value's",
                           (uintmax_t)i, (uintmax_t)length);
            return SL_ERR_CORRUPT;
        }
    }
    return err;
}

static bool line_waits(void)
{
    struct pollfd polled = {.fd = STDIN_FILENO, .events = POLLIN};
    return poll(&polled, 1, 0) != 0;
}

/* Every read finds a whole value, and never one that is older than the value before. */
static void read_on(const char *key)
{
    struct sl_error why = {0};
    uint64_t number = 0;
    uint64_t newest = 0;
    uint64_t count = 0;
    uint64_t changes = 0;
    sl_err err = SL_OK;
    while (err == SL_OK && !line_waits()) {
        err = get(key, &number, &why);
        if (err == SL_OK && number < newest) {
            (void)snprintf(why.text, sizeof why.text, "%ju after %ju", (uintmax_t)number,
                           (uintmax_t)newest);
            err = SL_ERR_STALE;
        }
        changes += number != newest;
        newest = number;
        count++;
    }
    (void)printf("%s %ju %ju %s\n", sl_err_name(err), (uintmax_t)count, (uintmax_t)changes,
                 why.text);
}

/* By itself and in a batch, with the same result. */
static sl_err exists(const char *key)
{
    const struct sl_object_key keys[] = {key_of(key), key_of(key)};
    sl_err codes[2];
    sl_err err = sl_exists_batch(client, keys, 2, codes);
    err = err == SL_OK && codes[0] != codes[1] ? SL_ERR_CORRUPT : err;
    err = err == SL_OK ? codes[0] : err;
    return sl_exists(client, keys[0]) == err ? err : SL_ERR_STALE;
}

static void list(void)
{
    struct sl_segment_info infos[SL_CONTRIBUTIONS_MAX];
    struct sl_error why = {0};
    uint32_t count = 0;
    sl_err err = sl_segments(client, infos, &count, 0, &why);
    (void)printf("%s", sl_err_name(err));
    for (uint32_t i = 0; i < count; i++) {
        (void)printf(" %s=%ju/%ju", infos[i].name, (uintmax_t)infos[i].used_bytes,
                     (uintmax_t)infos[i].length_bytes);
    }
    (void)printf("\n");
}

static uint64_t number_of(const char *text)
{
    return text == NULL ? 0 : strtoull(text, NULL, 10);
}

static void carry_out(char *words[WORDS_MAX])
{
    struct sl_error why = {0};
    uint64_t number = 0;
    sl_err err = SL_ERR_UNSUPPORTED;
    const char *name = words[1] != NULL ? words[1] : "";
    if (strcmp(words[0], "contribute") == 0) {
        err =
            sl_segment_mount(client, name, number_of(words[2]), number_of(words[3]) != 0, 0, &why);
    } else if (strcmp(words[0], "withdraw") == 0) {
        err = sl_segment_unmount(client, name, 0, &why);
    } else if (strcmp(words[0], "put") == 0 || strcmp(words[0], "replace") == 0) {
        err =
            put(name, number_of(words[2]), number_of(words[3]), words[4], words[0][0] == 'r', &why);
    } else if (strcmp(words[0], "get") == 0) {
        err = get(name, &number, &why);
    } else if (strcmp(words[0], "exists") == 0) {
        err = exists(name);
    } else if (strcmp(words[0], "read") == 0) {
        read_on(name);
        return;
    } else if (strcmp(words[0], "list") == 0) {
        list();
        return;
    }
    (void)printf("%s %ju %s\n", sl_err_name(err), (uintmax_t)number, why.text);
}

int main(int argc, char **argv)
{
    static char instance[256], runtime_dir[1024], shm_dir[1024];
    const char *settings[] = {instance, runtime_dir, shm_dir, "op_timeout=15s", NULL};
    struct sl_error why = {0};
    char line[512];
    if (argc != 4) {
        return 2;
    }
    (void)snprintf(instance, sizeof instance, "instance=%s", argv[1]);
    (void)snprintf(runtime_dir, sizeof runtime_dir, "runtime_dir=%s", argv[2]);
    (void)snprintf(shm_dir, sizeof shm_dir, "shm_dir=%s", argv[3]);
    const struct sl_client_options options = {.api_version = SLUICE_API_VERSION,
                                              .timeout_ns =
                                                  UINT64_C(60000000000), /* only ends hangs */
                                              .settings = settings};
    setvbuf(stdin, NULL, _IONBF, 0); /* unbuffered, so that poll sees waiting bytes in the pipe */
    if (sl_client_open(&options, &client, &why) != SL_OK) {
        (void)fprintf(stderr, "contributions_probe: open: %s\n", why.text);
        return 1;
    }
    while (fgets(line, sizeof line, stdin) != NULL) {
        char *words[WORDS_MAX] = {NULL};
        char *rest = line;
        for (int i = 0; i < WORDS_MAX && rest != NULL; i++) {
            words[i] = strtok_r(rest, " \n", &rest);
        }
        if (words[0] != NULL) {
            carry_out(words);
            (void)fflush(stdout);
        }
    }
    sl_client_close(&client);
    return 0;
}
