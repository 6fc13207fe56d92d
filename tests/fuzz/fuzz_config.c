/* tests/fuzz/fuzz_config.c - arbitrary bytes as a settings file: they are read, or refused by name.
 * A value that was read is within its range and reads back the same, and no file leaves state that
 * affects the next one. The same bytes are passed to the parsers of single values. */
#include "runtime/base/config_file.h"
#include "runtime/base/sl_config.h"
#include "runtime/base/sl_parse.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length_bytes);

static sl_err load_bytes(const void *bytes, size_t length_bytes, struct sl_config **config,
                         struct sl_error *why)
{
    char path[32];
    int fd = memfd_create("settings", MFD_CLOEXEC);
    SL_ASSERT(fd >= 0);
    SL_ASSERT(write(fd, bytes, length_bytes) == (ssize_t)length_bytes);
    (void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    SL_ASSERT(sl_config_create(config, NULL) == SL_OK);
    sl_err err = sl_config_load(*config, path, 0, NULL, NULL, why);
    SL_ASSERT(err == SL_OK || strstr(why->text, path) != NULL);
    (void)close(fd);
    return err;
}

static void check_values(const struct sl_config *config)
{
    struct sl_config *again = NULL;
    SL_ASSERT(sl_config_create(&again, NULL) == SL_OK);
    for (int i = 0; i < (int)SL_SETTING_COUNT_OF; i++) {
        enum sl_setting setting = (enum sl_setting)i;
        const char *text = sl_config_text(config, setting);
        SL_ASSERT(sl_config_assign(again, setting, text, "again", NULL) == SL_OK);
        SL_ASSERT(strcmp(sl_config_text(again, setting), text) == 0);
    }
    uint64_t ranks = sl_config_u64(config, SL_SET_ranks);
    SL_ASSERT(ranks >= 1 && ranks <= 64 && ranks == sl_config_u64(again, SL_SET_ranks));
    SL_ASSERT(sl_config_u64(config, SL_SET_memory) == sl_config_u64(again, SL_SET_memory));
    SL_ASSERT(sl_config_u64(config, SL_SET_disk_staging_usable) <= 1000000);
    sl_config_destroy(&again);
}

static void check_parsers(const uint8_t *bytes, size_t length_bytes)
{
    char text[256];
    size_t length = SL_MIN(length_bytes, sizeof(text) - 1);
    memcpy(text, bytes, length);
    text[length] = '\0';
    uint64_t untouched = 4711;
    struct sl_error why = {0};
    if (sl_parse_size(text, &untouched, &why) != SL_OK) {
        SL_ASSERT(untouched == 4711 && why.code == SL_ERR_INVALID && why.text[0] != '\0');
    }
    untouched = 4711;
    if (sl_parse_duration(text, &untouched, &why) != SL_OK) {
        SL_ASSERT(untouched == 4711 && why.code == SL_ERR_INVALID && why.text[0] != '\0');
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length_bytes)
{
    static const char good[] = "ranks = 7 # seven\n";
    struct sl_config *config = NULL;
    struct sl_error why = {0};
    if (load_bytes(bytes, length_bytes, &config, &why) == SL_OK) {
        check_values(config);
    } else {
        SL_ASSERT(why.code == SL_ERR_CONFIG && memchr(why.text, '\0', sizeof(why.text)) != NULL);
    }
    sl_config_destroy(&config);
    SL_ASSERT(load_bytes(good, sizeof(good) - 1, &config, &why) == SL_OK);
    SL_ASSERT(sl_config_u64(config, SL_SET_ranks) == 7);
    sl_config_destroy(&config);
    check_parsers(bytes, length_bytes);
    return 0;
}
