/* runtime/base/config_file.h - the settings file and the syntax of values: shared by sl_config.c
 * and its scanner. */
#ifndef SL_CONFIG_FILE_H
#define SL_CONFIG_FILE_H

#include "runtime/base/sl_config.h"

#define SL_CONFIG_SOURCE_BYTES 320
#define SL_CONFIG_VALUE_BYTES  4096 /* more than the longest setting */

/* Far above any real file: a larger one was named by mistake (a disk image, /dev/zero). */
#define SL_CONFIG_FILE_BYTES_MAX ((size_t)1024 * 1024)

/* Records that this file was read; secret: it has a password. Errors: SL_ERR_NO_MEMORY. */
sl_err sl_config_file_note(struct sl_config *config, const char *path, bool secret,
                           struct sl_error *why);
/* Applies the settings of the file. Errors: SL_ERR_CONFIG (names file, line and problem),
 * SL_ERR_NOT_FOUND / SL_ERR_OS (the file cannot be read). */
sl_err sl_config_file_load(struct sl_config *config, const char *path, struct sl_error *why);
/* Reads a value in the syntax that all sources share: drops surrounding blanks, removes quotes and
 * expands ${VARIABLE}. Errors: SL_ERR_CONFIG (names source and problem). */
sl_err sl_config_value_read(const char *text, const char *source, char out[SL_CONFIG_VALUE_BYTES],
                            struct sl_error *why);
/* Sets the setting to the text as it is. Errors: SL_ERR_CONFIG, SL_ERR_NO_MEMORY. */
sl_err sl_config_assign(struct sl_config *config, enum sl_setting setting, const char *text,
                        const char *source, struct sl_error *why);
/* The end of a source's name. Error texts are short, and the end of a long path is what
 * distinguishes files. */
const char *sl_config_source_end(const char *source);

#endif
