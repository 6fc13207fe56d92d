/* runtime/config_file.h - a file of settings: what sl_config.c shares with its scanner. */
#ifndef SL_CONFIG_FILE_H
#define SL_CONFIG_FILE_H

#include "runtime/sl_config.h"

#define SL_CONFIG_SOURCE_BYTES 320

/* Sets what the file says. Errors: SL_ERR_CONFIG (names file, line and what is wrong),
 * SL_ERR_NOT_FOUND / SL_ERR_OS (the file cannot be read). */
sl_err sl_config_file_load(struct sl_config *config, const char *path, struct sl_error *why);
/* The end of a source: of a long path it is the end that tells files apart, and an error's text is
 * short. */
const char *sl_config_source_end(const char *source);

#endif
