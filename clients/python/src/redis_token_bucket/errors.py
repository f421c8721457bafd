"""What is wrong with a request. That Redis is away is an error only for give and charge."""


class RequestError(ValueError):
    """The request can never be decided: an empty name, a cost out of range, a number of shards that does not work."""


class LimitError(RequestError):
    """A limit that the server would refuse, or that cannot be cut into as many shards as the policy says."""


class CostAboveShard(RequestError):
    """The cost fits no shard of a bucket, so it could never succeed."""


class Unavailable(RuntimeError):
    """Redis did not confirm that tokens were given or charged; they may have been, in part or in whole."""
