/* runtime/base/sl_address.h - HOST:PORT as people write it. */
#ifndef SL_ADDRESS_H
#define SL_ADDRESS_H

#include "runtime/base/sl_base.h"

#include <sys/socket.h>

enum sl_port_rule {
    SL_PORT_OPTIONAL, /* several colons without brackets are an IPv6 address alone */
    SL_PORT_NEEDED,   /* the last colon begins the port */
};

/* Cuts "HOST", "HOST:PORT", "[HOST]" or "[HOST]:PORT". host is without the brackets; *port is what
 * stands behind the colon (borrowed), NULL: nothing does. False: the host does not fit into room
 * bytes, a bracket is not closed, or the port is needed and not there. */
bool sl_address_split(const char *text, enum sl_port_rule rule, char *host, size_t room,
                      const char **port);
/* A URL for people and logs: of USER:PASSWORD@ the password is ***, and a text without a colon
 * there is all of it. Anything else stays as it is. Cut to room bytes. True: there is a password.
 */
bool sl_url_show(const char *url, char *out, size_t room);
/* 0..65535, all of the text, at most 5 digits. */
bool sl_port_parse(const char *text, uint16_t *port);
/* Both, for a port of 1..65535 that must be there. */
bool sl_address_parse(const char *text, char *host, size_t room, uint16_t *port);
/* An IP address as an address of a socket; false: it is none. */
bool sl_address_ip(const char *ip, uint16_t port, struct sockaddr_storage *out, socklen_t *length);

#endif
