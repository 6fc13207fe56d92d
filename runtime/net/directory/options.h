/* runtime/net/directory/options.h - reads a directory's options from the settings. */
#ifndef SL_DIRECTORY_OPTIONS_H
#define SL_DIRECTORY_OPTIONS_H

#include "runtime/base/sl_config.h"
#include "runtime/net/directory/directory.h"

/* Fills everything but seed and events. Strings and password are borrowed until the directory is
 * open. Errors: SL_ERR_CONFIG. */
#define SL_DIRECTORY_PASSWORD_BYTES 256u
sl_err sl_directory_options_from(const struct sl_config *config,
                                 struct sl_directory_options *options,
                                 char password[SL_DIRECTORY_PASSWORD_BYTES], struct sl_error *why);

#endif
