/* runtime/net/directory/options.c - a directory's options from the settings. */
#include "runtime/net/directory/options.h"
#include "runtime/base/sl_trust.h"

#include <string.h>

/* Reads the first line of a file that no other user can read. */
static sl_err password_read(const char *path, char out[SL_DIRECTORY_PASSWORD_BYTES],
                            struct sl_error *why)
{
    char text[4 * SL_DIRECTORY_PASSWORD_BYTES];
    struct sl_error inner = {0};
    if (sl_trust_read(path, SL_TRUST_SECRET, false, text, sizeof(text), &inner) != SL_OK) {
        return sl_fail(why, SL_ERR_CONFIG, "directory_password_file: %s", inner.text);
    }
    size_t length = strcspn(text, "\n");
    bool fits = length > 0 && length < SL_DIRECTORY_PASSWORD_BYTES;
    if (fits) {
        memcpy(out, text, length);
        out[length] = '\0';
    }
    explicit_bzero(text, sizeof(text));
    return fits ? SL_OK
                : sl_fail(why, SL_ERR_CONFIG,
                          "directory_password_file: the first line of '%s' is not 1 to %u bytes",
                          path, SL_DIRECTORY_PASSWORD_BYTES - 1);
}

sl_err sl_directory_options_from(const struct sl_config *config,
                                 struct sl_directory_options *options,
                                 char password[SL_DIRECTORY_PASSWORD_BYTES], struct sl_error *why)
{
    const char *kind = sl_config_text(config, SL_SET_directory);
    const char *file = sl_config_text(config, SL_SET_directory_password_file);
    bool redis = strcmp(kind, "redis") == 0;
    sl_directory_options_init(options);
    password[0] = '\0';
    if (!redis && strcmp(kind, "embedded") != 0) {
        return sl_fail(why, SL_ERR_CONFIG, "directory: '%.32s' is none of embedded, redis", kind);
    }
    options->kind = redis ? SL_DIRECTORY_REDIS : SL_DIRECTORY_EMBEDDED;
    options->url = sl_config_text(config, SL_SET_directory_url);
    options->password = password;
    options->cluster = sl_config_text(config, SL_SET_directory_name);
    options->node_ttl_ns = sl_config_u64(config, SL_SET_directory_node_ttl);
    options->key_ttl_ns = sl_config_u64(config, SL_SET_directory_key_ttl);
    options->timeout_ns = sl_config_u64(config, SL_SET_directory_timeout);
    return redis && file[0] != '\0' ? password_read(file, password, why) : SL_OK;
}
