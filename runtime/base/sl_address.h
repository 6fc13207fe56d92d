/* runtime/base/sl_address.h - parsing of HOST:PORT, ports and IP addresses. */
#ifndef SL_ADDRESS_H
#define SL_ADDRESS_H

#include "runtime/base/sl_base.h"

#include <sys/socket.h>

enum sl_port_rule {
    SL_PORT_OPTIONAL, /* several colons without brackets: an IPv6 address without a port */
    SL_PORT_NEEDED,   /* the text after the last colon is the port */
};

/* Splits "HOST", "HOST:PORT", "[HOST]" or "[HOST]:PORT". host is without brackets; *port is the
 * text after the colon (borrowed), NULL: none. False: the host does not fit into room bytes, a
 * bracket is not closed, or a needed port is missing. */
bool sl_address_split(const char *text, enum sl_port_rule rule, char *host, size_t room,
                      const char **port);
/* Copies a URL for display, with *** for the password of USER:PASSWORD@ (for the whole
 * part if it has no colon). Other texts are copied unchanged. Cut to room bytes. True: it has a
 * password. */
bool sl_url_redact(const char *url, char *out, size_t room);
/* Parses 0..65535: all of the text, at most 5 digits. */
bool sl_port_parse(const char *text, uint16_t *port);
/* Splits and parses HOST:PORT; the port is required, 1..65535. */
bool sl_address_parse(const char *text, char *host, size_t room, uint16_t *port);
/* Converts a numeric IP address to a socket address; false: it is none. */
bool sl_address_ip(const char *ip, uint16_t port, struct sockaddr_storage *out, socklen_t *length);

#endif
