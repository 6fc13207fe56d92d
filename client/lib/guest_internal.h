/* client/lib/guest_internal.h - what the files of a guest share. */
#ifndef SL_CLIENT_LIB_GUEST_INTERNAL_H
#define SL_CLIENT_LIB_GUEST_INTERNAL_H

#include "client/lib/guest_line.h"
#include "client/lib/guest_relay.h"

struct sl_guest {
    struct guest_lines lines;
    struct guest_relay *relay; /* for engines */
};

#endif
