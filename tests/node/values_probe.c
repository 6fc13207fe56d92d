/* tests/node/values_probe.c - a client that puts and gets values as it is told, for tests with many
 * of them: a sluicectl each costs more than all that it asks for. values_support.py speaks to it.
 *
 *   values_probe INSTANCE RUNTIME_DIR SHM_DIR
 *
 * Lines of its input, and what it answers to each:
 *   put KEY BYTES, then so many bytes   the error's name
 *   get KEY                             the error's name and a length, then so many bytes
 *   exists KEY                          the error's name
 */
#include "client/lib/sluice.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LINE_BYTES      1024u
#define VALUE_BYTES_MAX (64u << 20)

static unsigned char value[VALUE_BYTES_MAX];

static void answer(sl_err err, uint64_t length_bytes, const struct sl_error *why)
{
    (void)printf("%s %" PRIu64 "\n", sl_err_name(err), length_bytes);
    if (err != SL_OK) {
        (void)fprintf(stderr, "%s\n", why->text);
    }
}

static bool put(struct sl_client *client, struct sl_object_key key, uint64_t length_bytes)
{
    struct sl_error why = {0};
    if (length_bytes > sizeof value || fread(value, 1, length_bytes, stdin) != length_bytes) {
        return false;
    }
    answer(sl_put(client, key, value, length_bytes, 0, &why), 0, &why);
    return true;
}

static void get(struct sl_client *client, struct sl_object_key key)
{
    struct sl_error why = {0};
    uint64_t length_bytes = 0;
    sl_err err = sl_get(client, key, (struct sl_buffer){.at = value, .length_bytes = sizeof value},
                        &length_bytes, 0, &why);
    answer(err, err == SL_OK ? length_bytes : 0, &why);
    if (err == SL_OK) {
        (void)fwrite(value, 1, length_bytes, stdout);
    }
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
        char what[16], text[LINE_BYTES];
        uint64_t length_bytes = 0;
        int words = sscanf(line, "%15s %1023s %" SCNu64, what, text, &length_bytes);
        struct sl_object_key key = {.at = text, .length = (uint32_t)strlen(text)};
        if (words == 3 && strcmp(what, "put") == 0) {
            understood = put(client, key, length_bytes);
        } else if (words == 2 && strcmp(what, "get") == 0) {
            get(client, key);
        } else if (words == 2 && strcmp(what, "exists") == 0) {
            answer(sl_exists(client, key), 0, &why);
        } else {
            understood = false;
        }
        (void)fflush(stdout);
    }
    sl_client_close(&client);
    return understood ? 0 : 2;
}
