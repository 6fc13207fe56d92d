/* runtime/directory/options.c - a directory's options from the settings. */
#include "runtime/directory/options.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* One line of a file that others cannot read. */
static sl_err password_read(const char *path, char out[SL_DIRECTORY_PASSWORD_BYTES],
                            struct sl_error *why)
{
    struct stat status;
    SL_AUTO(close) int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (fd < 0 || fstat(fd, &status) != 0) {
        return sl_fail(why, SL_ERR_CONFIG, "directory_password_file: '%s': %s", path,
                       strerror(errno));
    }
    if (!S_ISREG(status.st_mode) || (status.st_mode & 077) != 0) {
        return sl_fail(why, SL_ERR_CONFIG,
                       "directory_password_file: '%s' is no file that only its owner can read "
                       "(chmod 600)",
                       path);
    }
    ssize_t got = read(fd, out, SL_DIRECTORY_PASSWORD_BYTES);
    if (got < 0) {
        return sl_fail(why, SL_ERR_CONFIG, "directory_password_file: '%s': %s", path,
                       strerror(errno));
    }
    const char *end = memchr(out, '\n', (size_t)got);
    size_t length = end == NULL ? (size_t)got : (size_t)(end - out);
    if (length == 0 || length >= SL_DIRECTORY_PASSWORD_BYTES) {
        return sl_fail(why, SL_ERR_CONFIG,
                       "directory_password_file: the first line of '%s' is not 1 to %u bytes", path,
                       SL_DIRECTORY_PASSWORD_BYTES - 1);
    }
    out[length] = '\0';
    return SL_OK;
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
