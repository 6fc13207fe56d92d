/* tests/node/values_probe.c - a client that puts and gets values by commands, for tests with many
 * values: a sluicectl for each would cost more than the values. values_support.py drives it.
 *
 *   values_probe INSTANCE RUNTIME_DIR SHM_DIR
 *
 * Lines of its input; TIMEOUT is in ms (0: the setting's):
 *   put KEY BYTES TIMEOUT, then the bytes
 *   get KEY TIMEOUT      the answer is followed by the value's bytes
 *   remove KEY TIMEOUT
 *   exists KEY
 *   stat KEY
 * The answer is a line: the error's name, the number of bytes that follow, and a text with the
 * reason of a failure; for stat, which of memory and disk have the value. */
#include "client/include/sluice.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LINE_BYTES      1024u
#define VALUE_BYTES_MAX (64u << 20)
#define NS_PER_MS       UINT64_C(1000000)

static unsigned char value[VALUE_BYTES_MAX];

static void answer(sl_err err, uint64_t length_bytes, const char *text)
{
    (void)printf("%s %" PRIu64 " %s\n", sl_err_name(err), length_bytes, text);
}

static bool put(struct sl_client *client, struct sl_object_key key, uint64_t length_bytes,
                uint64_t timeout_ms)
{
    struct sl_error why = {0};
    if (length_bytes > sizeof value || fread(value, 1, length_bytes, stdin) != length_bytes) {
        return false;
    }
    sl_err err = sl_put(client, key, value, length_bytes, timeout_ms * NS_PER_MS, &why);
    answer(err, 0, why.text);
    return true;
}

static void get(struct sl_client *client, struct sl_object_key key, uint64_t timeout_ms)
{
    struct sl_error why = {0};
    uint64_t length_bytes = 0;
    sl_err err = sl_get(client, key, (struct sl_buffer){.at = value, .length_bytes = sizeof value},
                        &length_bytes, timeout_ms * NS_PER_MS, &why);
    length_bytes = err == SL_OK ? length_bytes : 0;
    answer(err, length_bytes, why.text);
    (void)fwrite(value, 1, length_bytes, stdout);
}

static void stat_of(struct sl_client *client, struct sl_object_key key)
{
    struct sl_object_info info = {0};
    sl_err err = sl_stat(client, key, &info);
    char text[16];
    (void)snprintf(text, sizeof text, "%s%s", info.in_memory ? "memory " : "",
                   info.on_disk ? "disk" : "");
    answer(err, 0, err == SL_OK ? text : "");
}

/* False: the line is no such. */
static bool follow(struct sl_client *client, const char *line)
{
    char what[16], text[LINE_BYTES];
    uint64_t first = 0, second = 0;
    int words = sscanf(line, "%15s %1023s %" SCNu64 " %" SCNu64, what, text, &first, &second);
    struct sl_object_key key = {.at = text, .length = words < 2 ? 0 : (uint32_t)strlen(text)};
    struct sl_error why = {0};
    if (words == 4 && strcmp(what, "put") == 0) {
        return put(client, key, first, second);
    }
    if (words == 3 && strcmp(what, "get") == 0) {
        get(client, key, first);
    } else if (words == 3 && strcmp(what, "remove") == 0) {
        sl_err err = sl_remove(client, key, first * NS_PER_MS, &why);
        answer(err, 0, why.text);
    } else if (words == 2 && strcmp(what, "exists") == 0) {
        answer(sl_exists(client, key), 0, "");
    } else if (words == 2 && strcmp(what, "stat") == 0) {
        stat_of(client, key);
    } else {
        return false;
    }
    return true;
}

int main(int argc, char **argv)
{
    if (argc != 4) {
        return 2;
    }
    char instance[256], runtime_dir[1024], shm_dir[1024];
    const char *settings[] = {instance, runtime_dir, shm_dir, NULL};
    (void)snprintf(instance, sizeof instance, "instance=%s", argv[1]);
    (void)snprintf(runtime_dir, sizeof runtime_dir, "runtime_dir=%s", argv[2]);
    (void)snprintf(shm_dir, sizeof shm_dir, "shm_dir=%s", argv[3]);
    const struct sl_client_options options = {.api_version = SLUICE_API_VERSION,
                                              .timeout_ns =
                                                  UINT64_C(60000000000), /* only ends hangs */
                                              .settings = settings};
    struct sl_client *client = NULL;
    struct sl_error why = {0};
    if (sl_client_open(&options, &client, &why) != SL_OK) {
        (void)fprintf(stderr, "%s\n", why.text);
        return 1;
    }
    char line[LINE_BYTES];
    bool understood = true;
    while (understood && fgets(line, sizeof line, stdin) != NULL) {
        understood = follow(client, line);
        (void)fflush(stdout);
    }
    sl_client_close(&client);
    return understood ? 0 : 2;
}
