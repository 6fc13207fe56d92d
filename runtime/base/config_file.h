/* runtime/base/config_file.h - how settings are written: what sl_config.c shares with its scanner.
 */
#ifndef SL_CONFIG_FILE_H
#define SL_CONFIG_FILE_H

#include "runtime/base/sl_config.h"

#define SL_CONFIG_SOURCE_BYTES 320
#define SL_CONFIG_VALUE_BYTES  4096 /* above the longest setting */

/* Far above any real file: what is larger was named by mistake (a disk image, /dev/zero). */
#define SL_CONFIG_FILE_BYTES_MAX ((size_t)1024 * 1024)

/* This file is read; secret: it has a password. Errors: SL_ERR_NO_MEMORY. */
sl_err sl_config_file_note(struct sl_config *config, const char *path, bool secret,
                           struct sl_error *why);
/* Sets what the file says. Errors: SL_ERR_CONFIG (names file, line and what is wrong),
 * SL_ERR_NOT_FOUND / SL_ERR_OS (the file cannot be read). */
sl_err sl_config_file_load(struct sl_config *config, const char *path, struct sl_error *why);
/* A value as a file has it, from the environment or a command line: blanks around it go, quotes and
 * ${VARIABLE} count. Errors: SL_ERR_CONFIG (names source and what is wrong). */
sl_err sl_config_value_read(const char *text, const char *source, char out[SL_CONFIG_VALUE_BYTES],
                            struct sl_error *why);
/* Sets it to the text as it is. Errors: SL_ERR_CONFIG, SL_ERR_NO_MEMORY. */
sl_err sl_config_assign(struct sl_config *config, enum sl_setting setting, const char *text,
                        const char *source, struct sl_error *why);
/* The end of a source: of a long path it is the end that tells files apart, and an error's text is
 * short. */
const char *sl_config_source_end(const char *source);

#endif
