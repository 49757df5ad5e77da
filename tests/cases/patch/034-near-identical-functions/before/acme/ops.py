# gen
# gen
# gen
# gen
# gen
# gen
# gen
# gen
# gen
@register
def handle_0(request):
    session = get_session(request)
    check(session)
    result = session.call(request.payload)
    log(session)
    return result


@register
def handle_1(request):
    session = get_session(request)
    check(session)
    result = session.call(request.payload)
    log(session)
    return result


@register
def handle_2(request):
    session = get_session(request)
    check(session)
    result = session.call(request.payload)
    log(session)
    return result


@register
def handle_3(request):
    session = get_session(request)
    check(session)
    result = session.call(request.payload)
    log(session)
    return result


@register
def handle_4(request):
    session = get_session(request)
    check(session)
    result = session.call(request.payload)
    log(session)
    return result


@register
def handle_5(request):
    session = get_session(request)
    check(session)
    result = session.call(request.payload)
    log(session)
    return result


@register
def handle_6(request):
    session = get_session(request)
    check(session)
    result = session.call(request.payload)
    log(session)
    return result


@register
def handle_7(request):
    session = get_session(request)
    check(session)
    result = session.call(request.payload)
    log(session)
    return result


