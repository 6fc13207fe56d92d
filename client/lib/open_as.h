/* client/lib/open_as.h - clients that the node knows by another name than that of their process. */
#ifndef SL_CLIENT_LIB_OPEN_AS_H
#define SL_CLIENT_LIB_OPEN_AS_H

#include "client/lib/sluice.h"

/* As sl_client_open. who: 18 characters at most that begin the name by which the node knows the client. Behind
 * them stand its process and a random number, since what another one of that process number pinned may stay
 * (sl_pins_keep). NULL: as of all clients. */
sl_err sl_client_open_as(const char *who, const struct sl_client_options *options,
                         struct sl_client **out, struct sl_error *why);

#endif
